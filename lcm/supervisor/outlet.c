/* outlet.c - a thread and queues of its own between the learner's output and Kafka, so that no outage of the broker is felt by whoever pushes.
 *
 * A record of a log line or metric point is: (training_id, generation, process) — the same for the whole run —, rindex, the rest. Items
 * hold only the rest; the number is put between when the item is sent. LogLine and MetricPoint share this layout (a test holds it). */
#include "lcm/supervisor/outlet.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "lcm/supervisor/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ANSWERS_US   3000000 /* a broker that acknowledged something so long ago is there */
#define COMPLAIN_US  10000000
#define PAUSE_MS     100 /* after a refusal; then twice as long each time */
#define PAUSE_MS_MAX 2000
#define STATE_MAGIC  0x31746c74756f7370ull

typedef struct item {
    struct item *next;
    int kind;
    bool acked;
    int64_t rindex;   /* -1 = none given yet */
    uint64_t segment; /* of the spool; 0 = came by memory */
    size_t len;
    char data[];
} item;

typedef struct list {
    item *head, *tail;
    size_t n, bytes;
} list;

/* In outlet.state, mapped: survives a kill -9 of the supervisor. */
typedef struct state {
    uint64_t magic;
    int64_t next[2];        /* rindex of the next log line, of the next metric point */
    uint64_t segment, done; /* items of that spool segment that are acknowledged */
    int64_t begun_ms;       /* Unix time of the first supervisor's start; 0 = a file of an older program */
    int64_t unsure;         /* see below: numbers from next[] on may stand on the topic already */
} state;

/* What a successor has to find out. LEFT: unacknowledged items are in the spool, in order, and next[] is the number of their first.
 * KILLED (set while a supervisor works): next[] is behind what was in flight, which is lost unless it came from the spool. */
enum { SURE = 0, UNSURE_LEFT = 1, UNSURE_KILLED = 2 };

struct sup_outlet {
    sup_outlet_conf conf;
    char *key, *process, *reporter, *host, *node, *nonce;
    pst_buf prefix;
    state *st;
    sup_spool *spool;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool begun, stop;
    list reports, memory;              /* waiting */
    list flight;                       /* sent, oldest first; acknowledged ones stay until they are at the head */
    int64_t complained_us, complaints; /* what goes on going wrong is logged once in a while */
    size_t segment_left;               /* unfinished items of the spool segment that was loaded */
    int64_t acked, dropped;
    int64_t acked_us;  /* when the last was; monotonic */
    char trouble[200]; /* since then, and when */
    int64_t trouble_us;
    int64_t unspooled_lines, unspooled_bytes; /* the disk was full: published as a gap */
    int64_t ask;                              /* SURE, or what the predecessor left to be found out */
    int64_t last[2];                          /* numbers up to these were found on the topic when it was asked; -1 = none */
};

static void list_add(list *l, item *it)
{
    it->next = NULL;
    if (l->tail)
        l->tail->next = it;
    else
        l->head = it;
    l->tail = it;
    l->n++;
    l->bytes += it->len;
}

static item *list_pop(list *l)
{
    item *it = l->head;
    if (!it)
        return NULL;
    l->head = it->next;
    if (!l->head)
        l->tail = NULL;
    l->n--;
    l->bytes -= it->len;
    return it;
}

static void list_free(list *l)
{
    for (item *it; (it = list_pop(l));)
        free(it);
}

static item *item_new(int kind, const void *data, size_t len)
{
    item *it = pst_alloc(sizeof *it + len + 1);
    it->kind = kind;
    it->rindex = -1;
    it->len = len;
    memcpy(it->data, data, len);
    return it;
}

/* With the lock held. */
static void complain(sup_outlet *o, const pst_err *err)
{
    int64_t now = pst_mono_us();
    snprintf(o->trouble, sizeof o->trouble, "%.199s", err->text);
    o->trouble_us = now;
    o->complaints++;
    if (o->complained_us && now - o->complained_us < COMPLAIN_US)
        return;
    if (o->complaints > 1)
        pst_log(PST_LOG_ERROR, "supervisor", "event=again times=%lld", (long long)o->complaints - 1);
    pst_log_err("supervisor", err);
    o->complained_us = now;
    o->complaints = 0;
}

/* ---- pushing (main thread) -------------------------------------------------------------------------------------------------- */

/* With the lock held. */
static void enqueue(sup_outlet *o, int kind, const void *data, size_t len)
{
    if (sup_spool_empty(o->spool) && o->memory.bytes < o->conf.memory_bytes_max) {
        list_add(&o->memory, item_new(kind, data, len));
        return;
    }
    pst_err err = {0};
    if (sup_spool_append(o->spool, kind, kind == PST_OUTLET_LOG, data, len, &err) < 0) {
        complain(o, &err);
        o->unspooled_lines++;
        o->unspooled_bytes += (int64_t)len;
        o->dropped++;
    }
}

/* Appends the part of an event behind its rindex; the event was given the run's names and rindex 0. */
static void push_rest(sup_outlet *o, int kind, const pst_type *type, const void *event)
{
    pst_buf b = {0};
    pst_event_encode(type, event, &b);
    size_t head = o->prefix.len + 1;
    PST_ASSERT(b.len >= head && !memcmp(b.data, o->prefix.data, o->prefix.len) && b.data[head - 1] == 0);
    pthread_mutex_lock(&o->lock);
    enqueue(o, kind, b.data + head, b.len - head);
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    pst_buf_done(&b);
}

static void encode_gap(const sup_outlet *o, int64_t time_us, int64_t lines, int64_t bytes, const char *why, pst_buf *out)
{
    char *text = pst_sprintf("[%lld lines (%lld bytes) left out: %s]", (long long)lines, (long long)bytes, why);
    pst_log_gap gap = {.lines = lines, .bytes = bytes, .why = (char *)why};
    pst_log_line line = {.training_id = o->key,
                         .generation = o->conf.generation,
                         .process = o->process,
                         .time = time_us,
                         .stream = PST_LOG_STREAM_SYSTEM,
                         .text = text,
                         .gap = &gap};
    pst_event_encode(&pst_log_line_type, &line, out);
    free(text);
}

void sup_outlet_log(sup_outlet *o, pst_log_stream stream, int64_t time_us, const char *text, size_t len)
{
    char *copy = pst_strndup(text, len);
    pst_log_line line = {
        .training_id = o->key, .generation = o->conf.generation, .process = o->process, .time = time_us, .stream = stream, .text = copy};
    push_rest(o, PST_OUTLET_LOG, &pst_log_line_type, &line);
    free(copy);
}

void sup_outlet_gap(sup_outlet *o, int64_t time_us, int64_t lines, int64_t bytes, const char *why)
{
    pst_buf b = {0};
    encode_gap(o, time_us, lines, bytes, why, &b);
    size_t head = o->prefix.len + 1;
    pthread_mutex_lock(&o->lock);
    enqueue(o, PST_OUTLET_LOG, b.data + head, b.len - head);
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    pst_buf_done(&b);
}

void sup_outlet_metric(sup_outlet *o, const pst_metric_point *point)
{
    pst_metric_point p = *point;
    p.training_id = o->key;
    p.generation = o->conf.generation;
    p.process = o->process;
    p.rindex = 0;
    if (!p.group)
        p.group = (char *)"train";
    push_rest(o, PST_OUTLET_METRIC, &pst_metric_point_type, &p);
}

void sup_outlet_report(sup_outlet *o, const pst_process_report *report)
{
    pst_process_report r = *report;
    r.training_id = o->key;
    r.generation = o->conf.generation;
    r.process = o->process;
    r.reporter = o->reporter;
    r.host = o->host;
    r.node = o->node;
    r.nonce = o->nonce;
    if (!r.time)
        r.time = pst_now_us();
    pst_buf b = {0};
    pst_event_encode(&pst_process_report_type, &r, &b);
    pthread_mutex_lock(&o->lock);
    list_add(&o->reports, item_new(PST_OUTLET_REPORT, b.data, b.len));
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    pst_buf_done(&b);
}

/* ---- the outlet's thread ---------------------------------------------------------------------------------------------------- */

static void zigzag(pst_buf *out, int64_t v)
{
    uint64_t u = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    for (; u >= 0x80; u >>= 7)
        pst_buf_addc(out, (char)(u | 0x80));
    pst_buf_addc(out, (char)u);
}

static void compose(sup_outlet *o, item *it, pst_buf *out)
{
    pst_buf_clear(out);
    if (it->kind != PST_OUTLET_REPORT) {
        if (it->rindex < 0)
            it->rindex = o->st->next[it->kind - PST_OUTLET_LOG]++;
        pst_buf_add(out, o->prefix.data, o->prefix.len);
        zigzag(out, it->rindex);
    }
    pst_buf_add(out, it->data, it->len);
}

typedef struct loading {
    sup_outlet *o;
    uint64_t segment;
    list got;
} loading;

static void load_item(void *arg, int kind, const void *data, size_t len)
{
    loading *l = arg;
    if (kind == PST_OUTLET_LOG || kind == PST_OUTLET_METRIC)
        list_add(&l->got, item_new(kind, data, len));
}

static void add_gap_item(sup_outlet *o, list *to, int64_t lines, int64_t bytes, const char *why)
{
    pst_buf b = {0};
    size_t head = o->prefix.len + 1;
    encode_gap(o, pst_now_us(), lines, bytes, why, &b);
    list_add(to, item_new(PST_OUTLET_LOG, b.data + head, b.len - head));
    pst_buf_done(&b);
}

/* With the lock held: the oldest spool segment becomes memory. */
static void load_segment(sup_outlet *o)
{
    loading l = {.o = o};
    sup_spool_lost lost;
    pst_err err = {0};
    uint64_t first = sup_spool_first(o->spool), number;
    size_t skip = first == o->st->segment ? o->st->done : 0;
    if (sup_spool_take(o->spool, skip, load_item, &l, &number, &lost, &err) < 0) {
        complain(o, &err);
        return;
    }
    o->st->segment = number;
    o->st->done = skip;
    if (lost.lines || lost.metrics) {
        char why[128];
        snprintf(why, sizeof why, "the spool was full while the broker was away (%lld metric points too)", (long long)lost.metrics);
        add_gap_item(o, &o->memory, lost.lines, lost.bytes, why);
        o->dropped += lost.lines + lost.metrics;
    }
    for (item *it; (it = list_pop(&l.got));) {
        it->segment = number;
        o->segment_left++;
        list_add(&o->memory, it);
    }
    if (!o->segment_left) {
        sup_spool_release(o->spool, number);
        o->st->segment = o->st->done = 0;
    }
}

/* With the lock held: one item less of the loaded segment; the last one takes the file with it. */
static void finish_item(sup_outlet *o, item *it)
{
    o->acked++;
    o->acked_us = pst_mono_us();
    *o->trouble = 0;
    if (it->segment) {
        PST_ASSERT(o->segment_left > 0);
        o->st->done++;
        if (--o->segment_left == 0) {
            sup_spool_release(o->spool, it->segment);
            o->st->segment = o->st->done = 0;
        }
    }
    free(it);
}

/* With the lock held: acknowledged items leave at the head, so that what is left is always the unfinished rest in order. */
static void retire(sup_outlet *o)
{
    while (o->flight.head && o->flight.head->acked)
        finish_item(o, list_pop(&o->flight));
    pthread_cond_broadcast(&o->changed);
}

/* With the lock held: everything that was sent and not acknowledged goes back in front, in order. */
static void take_back(sup_outlet *o)
{
    list reports = {0}, rest = {0};
    for (item *it; (it = list_pop(&o->flight));)
        if (it->acked)
            finish_item(o, it);
        else
            list_add(it->kind == PST_OUTLET_REPORT ? &reports : &rest, it);
    for (item *it; (it = list_pop(&o->reports));)
        list_add(&reports, it);
    for (item *it; (it = list_pop(&o->memory));)
        list_add(&rest, it);
    o->reports = reports;
    o->memory = rest;
}

typedef struct outcome {
    sup_outlet *o;
    bool failed;
} outcome;

static void on_done(void *arg, void *token, int code)
{
    outcome *u = arg;
    item *it = token;
    pthread_mutex_lock(&u->o->lock);
    if (!code) {
        it->acked = true;
    } else if (code == PST_ELIMIT || code == PST_EINVAL) { /* this record never will be taken */
        it->acked = true;
        u->o->dropped++;
    } else {
        u->failed = true;
    }
    if (u->o->flight.head && u->o->flight.head->acked)
        retire(u->o);
    pthread_mutex_unlock(&u->o->lock);
}

/* With the lock held: the item, the last in flight, was not taken by the sink: back to the front of its list. */
static void unsend(sup_outlet *o, item *it)
{
    PST_ASSERT(o->flight.tail == it);
    PST_ASSERT(o->flight.n > 0 && !it->acked); /* a sink that refuses has not taken the token, so none came back */
    item *before = NULL;
    for (item *x = o->flight.head; x != it; x = x->next)
        before = x;
    if (before)
        before->next = NULL;
    else
        o->flight.head = NULL;
    o->flight.tail = before;
    o->flight.n--;
    o->flight.bytes -= it->len;
    list *from = it->kind == PST_OUTLET_REPORT ? &o->reports : &o->memory;
    it->next = from->head;
    from->head = it;
    if (!from->tail)
        from->tail = it;
    from->n++;
    from->bytes += it->len;
}

/* With the lock held: kind's last number on the topic is known. */
static void learn_last(sup_outlet *o, int kind, int64_t last)
{
    PST_ASSERT(kind == PST_OUTLET_LOG || kind == PST_OUTLET_METRIC); /* reports have no numbers */
    int64_t *next = &o->st->next[kind - PST_OUTLET_LOG];
    o->last[kind - PST_OUTLET_LOG] = last;
    if (o->ask != UNSURE_KILLED || last + 1 >= *next)
        return;
    int64_t lost = *next - (last + 1);
    *next = last + 1;
    if (!o->st->segment && kind == PST_OUTLET_LOG) /* else they come again from the spool */
        add_gap_item(o, &o->memory, lost, 0, "the supervisor was killed before they were stored");
}

/* Before anything is sent (again): what of it is on the topic? False: the sink does not know now. Without the lock. */
static bool ask_sink(sup_outlet *o)
{
    for (int kind = PST_OUTLET_LOG; o->ask && o->conf.sink.last && kind <= PST_OUTLET_METRIC; kind++) {
        int64_t last = -1;
        pst_err err = {0};
        int rc = o->conf.sink.last(o->conf.sink.arg, (pst_outlet_kind)kind, o->key, o->conf.generation, o->process, o->st->begun_ms, &last,
                                   &err);
        pthread_mutex_lock(&o->lock);
        if (rc < 0)
            complain(o, &err);
        else
            learn_last(o, kind, last);
        pthread_mutex_unlock(&o->lock);
        if (rc < 0)
            return false;
    }
    o->ask = SURE;
    return true;
}

/* With the lock held: an item that was sent before and stands on the topic is done, with its number. */
static bool already_stored(sup_outlet *o, item *it)
{
    if (it->kind == PST_OUTLET_REPORT)
        return false;
    int64_t *next = &o->st->next[it->kind - PST_OUTLET_LOG], number = it->rindex >= 0 ? it->rindex : *next;
    if (number > o->last[it->kind - PST_OUTLET_LOG])
        return false;
    if (it->rindex < 0)
        ++*next;
    finish_item(o, it);
    return true;
}

/* Sends what there is room for. Returns false when the sink wants a pause. Without the lock. */
static bool send_some(sup_outlet *o, pst_buf *scratch)
{
    if (!ask_sink(o))
        return false;
    for (;;) {
        pthread_mutex_lock(&o->lock);
        if (!o->memory.n && o->unspooled_lines) {
            add_gap_item(o, &o->memory, o->unspooled_lines, o->unspooled_bytes, "the disk of the run directory was full");
            o->unspooled_lines = o->unspooled_bytes = 0;
        }
        if (!o->memory.n && !sup_spool_empty(o->spool) && !o->segment_left)
            load_segment(o);
        bool room = o->flight.n < PST_OUTLET_ITEMS_MAX && o->flight.bytes < PST_OUTLET_FLIGHT_MAX;
        item *it = list_pop(&o->reports); /* first, and whatever is in flight: they are few, and the Trainer waits for them */
        if (!it && room)
            it = list_pop(&o->memory);
        if (it && already_stored(o, it)) {
            pthread_mutex_unlock(&o->lock);
            continue;
        }
        if (it) {
            compose(o, it, scratch);
            list_add(&o->flight, it); /* before the send: its acknowledgement may come at once */
        }
        pthread_mutex_unlock(&o->lock);
        if (!it)
            return true;
        pst_err err = {0};
        if (o->conf.sink.send(o->conf.sink.arg, (pst_outlet_kind)it->kind, o->key, scratch->data, scratch->len, it, &err) == 0)
            continue;
        pthread_mutex_lock(&o->lock);
        complain(o, &err);
        pthread_mutex_unlock(&o->lock);
        if (err.cls == PST_CLASS_DATA) {
            outcome u = {.o = o};
            on_done(&u, it, PST_EINVAL);
            continue;
        }
        pthread_mutex_lock(&o->lock);
        unsend(o, it);
        pthread_mutex_unlock(&o->lock);
        return false;
    }
}

static void wait_ms(sup_outlet *o, int ms)
{
    struct timespec until = pst_mono_at(pst_mono_us() + ms * 1000LL);
    pthread_cond_timedwait(&o->changed, &o->lock, &until);
}

/* Until sup_outlet_begin(), or begin_ms are over. */
static void wait_to_begin(sup_outlet *o)
{
    int64_t until = pst_mono_us() + o->conf.begin_ms * 1000ll;
    pthread_mutex_lock(&o->lock);
    for (int64_t left; !o->begun && !o->stop && (left = until - pst_mono_us()) > 0;)
        wait_ms(o, (int)(left / 1000) + 1);
    pthread_mutex_unlock(&o->lock);
}

static int next_pause(int pause_ms)
{
    if (!pause_ms)
        return PAUSE_MS;
    return pause_ms < PAUSE_MS_MAX / 2 ? 2 * pause_ms : PAUSE_MS_MAX;
}

/* Sends, then looks after what is in flight, and sleeps when there is neither. The pause after a refusal doubles from 100 ms to 2 s. A delivery that
 * failed takes everything in flight back, for order within a kind counts more than what is sent twice: numbers are asked for before. */
static void *outlet_thread(void *arg)
{
    sup_outlet *o = arg;
    pst_buf scratch = {0};
    int pause_ms = 0;
    wait_to_begin(o);
    for (;;) {
        bool flowing = send_some(o, &scratch);
        pause_ms = flowing ? 0 : next_pause(pause_ms);
        pthread_mutex_lock(&o->lock);
        bool in_flight = o->flight.n > 0;
        if (!in_flight && !o->stop && (pause_ms || (!o->memory.n && !o->reports.n && sup_spool_empty(o->spool))))
            wait_ms(o, pause_ms ? pause_ms : 1000);
        bool stop = o->stop;
        pthread_mutex_unlock(&o->lock);
        if (stop)
            break;
        if (!in_flight)
            continue;
        outcome u = {.o = o};
        o->conf.sink.pump(o->conf.sink.arg, pause_ms ? pause_ms : 10, on_done, &u);
        if (u.failed) {
            o->conf.sink.reset(o->conf.sink.arg);
            pthread_mutex_lock(&o->lock);
            take_back(o);
            o->ask = UNSURE_LEFT; /* an acknowledgement may be what was lost, not the record */
            if (!o->stop)
                wait_ms(o, 500);
            pthread_mutex_unlock(&o->lock);
        }
    }
    pst_buf_done(&scratch);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------------------------------------- */

static int map_state(sup_outlet *o, pst_err *err)
{
    char *path = pst_fs_join(o->conf.run_dir, "outlet.state");
    int rc = 0, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(state)) < 0)
        rc = pst_err_sys(err, errno, "cannot write %s", path);
    void *at = rc ? MAP_FAILED : mmap(NULL, sizeof(state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!rc && at == MAP_FAILED)
        rc = pst_err_sys(err, errno, "cannot map %s", path);
    if (fd >= 0)
        close(fd);
    free(path);
    if (rc)
        return rc;
    o->st = at;
    if (o->st->magic != STATE_MAGIC || o->st->next[0] < 0 || o->st->next[1] < 0) {
        memset(o->st, 0, sizeof *o->st);
        o->st->magic = STATE_MAGIC;
        o->st->begun_ms = pst_now_us() / 1000;
    }
    o->last[0] = o->last[1] = -1;
    o->ask = o->st->unsure;
    o->st->unsure = UNSURE_KILLED;
    return 0;
}

static void free_all(sup_outlet *o)
{
    list_free(&o->reports);
    list_free(&o->memory);
    list_free(&o->flight);
    sup_spool_close(o->spool);
    if (o->st)
        munmap(o->st, sizeof *o->st);
    pst_buf_done(&o->prefix);
    free(o->key);
    free(o->process);
    free(o->reporter);
    free(o->node);
    free(o->nonce);
    free(o->host);
    free((char *)o->conf.run_dir);
    free(o);
}

/* What every record begins with is encoded once; a successor's copies of the names must be byte for byte the same. */
int sup_outlet_open(const sup_outlet_conf *conf, sup_outlet **ret_outlet, pst_err *err)
{
    sup_outlet *o = pst_alloc(sizeof *o);
    o->conf = *conf;
    o->conf.run_dir = pst_strdup(conf->run_dir);
    if (!o->conf.spool_bytes_max)
        o->conf.spool_bytes_max = PST_OUTLET_SPOOL_MAX;
    if (!o->conf.memory_bytes_max)
        o->conf.memory_bytes_max = PST_OUTLET_MEMORY_MAX;
    o->key = pst_strdup(conf->training_id);
    o->process = pst_strdup(conf->process);
    o->reporter = pst_strdup(conf->reporter);
    o->node = pst_strdup(conf->node ? conf->node : "");
    o->nonce = pst_strdup(conf->nonce ? conf->nonce : "");
    o->host = pst_strdup(conf->host);
    pst_avro_put_bytes(&o->prefix, o->key, strlen(o->key));
    pst_avro_put_long(&o->prefix, conf->generation);
    pst_avro_put_bytes(&o->prefix, o->process, strlen(o->process));
    pst_cond_init(&o->changed);
    pthread_mutex_init(&o->lock, NULL);
    int rc = map_state(o, err);
    if (!rc)
        rc = sup_spool_open(conf->run_dir, o->conf.spool_bytes_max, &o->spool, err);
    if (!rc) {
        int e = pst_thread_start(&o->thread, "outlet", outlet_thread, o);
        if (e)
            rc = pst_err_sys(err, e, "cannot start the outlet's thread");
    }
    if (rc) {
        free_all(o);
        return rc;
    }
    *ret_outlet = o;
    return 0;
}

void sup_outlet_begin(sup_outlet *o)
{
    pthread_mutex_lock(&o->lock);
    o->begun = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

int sup_outlet_flush(sup_outlet *o, bool (*give_up)(void *arg), void *arg)
{
    int rc = 0;
    sup_outlet_begin(o);
    pthread_mutex_lock(&o->lock);
    while (o->reports.n || o->memory.n || o->flight.n || !sup_spool_empty(o->spool) || o->unspooled_lines) {
        wait_ms(o, 100);
        if (give_up && give_up(arg)) {
            rc = PST_ESTOPPED;
            break;
        }
    }
    pthread_mutex_unlock(&o->lock);
    return rc;
}

bool sup_outlet_crowded(sup_outlet *o)
{
    pthread_mutex_lock(&o->lock);
    bool yes = sup_spool_bytes(o->spool) > o->conf.spool_bytes_max / 2 && pst_mono_us() - o->acked_us < ANSWERS_US;
    pthread_mutex_unlock(&o->lock);
    return yes;
}

void sup_outlet_count(sup_outlet *o, sup_outlet_counts *ret_counts)
{
    pthread_mutex_lock(&o->lock);
    *ret_counts = (sup_outlet_counts){.begun = o->begun,
                                      .acked = o->acked,
                                      .dropped = o->dropped,
                                      .acked_us = o->acked_us,
                                      .reports = (int64_t)o->reports.n,
                                      .waiting = (int64_t)o->memory.n,
                                      .waiting_bytes = (int64_t)o->memory.bytes,
                                      .in_flight = (int64_t)o->flight.n,
                                      .in_flight_bytes = (int64_t)o->flight.bytes,
                                      .spool_bytes = sup_spool_bytes(o->spool),
                                      .unspooled_lines = o->unspooled_lines,
                                      .trouble_us = o->trouble_us};
    memcpy(ret_counts->trouble, o->trouble, sizeof o->trouble);
    pthread_mutex_unlock(&o->lock);
}

/* What was not acknowledged is written in front of the spool; numbers already given are taken back, so that a repetition has the same. */
static void leave_rest(sup_outlet *o)
{
    pst_buf b = {0};
    int64_t unsure = o->ask; /* never found out: still to be */
    for (int k = 0; k < 2; k++)
        if (o->st->next[k] <= o->last[k]) /* found out, and not yet passed over */
            unsure = UNSURE_LEFT;
    take_back(o);
    for (item *it; (it = list_pop(&o->memory));) {
        int64_t *next = &o->st->next[it->kind - PST_OUTLET_LOG];
        if (it->rindex >= 0 && it->rindex < *next)
            *next = it->rindex;
        if (it->rindex >= 0)
            unsure = UNSURE_LEFT;
        sup_spool_item(&b, it->kind, it->data, it->len);
        free(it);
    }
    pst_err err = {0};
    if (sup_spool_prepend(o->spool, b.data, b.len, &err) < 0) {
        pst_log_err("supervisor", &err);
    } else if (o->segment_left) { /* what was left of the loaded segment is in the new file */
        sup_spool_release(o->spool, o->st->segment);
        o->st->segment = o->st->done = 0;
    }
    o->st->unsure = unsure;
    pst_buf_done(&b);
}

void sup_outlet_close(sup_outlet *o)
{
    if (!o)
        return;
    pthread_mutex_lock(&o->lock);
    o->stop = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
    leave_rest(o);
    if (o->conf.sink.close)
        o->conf.sink.close(o->conf.sink.arg);
    free_all(o);
}
