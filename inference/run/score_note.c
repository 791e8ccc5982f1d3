/* score_note.c - the note is a shared mapping: what was stored there survives the process, whatever ends it, without a system call a batch. The
 * handler of a fatal signal only writes the signal's number into it, puts the handler that was there before back (a sanitizer's, or none), and
 * returns, so that the signal strikes again and does what it would have done. It counts where a record is being computed: on a thread that said so,
 * or on one of the engine's pool, which does nothing else. */
#include "inference/run/score_note.h"

#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/lock.h"
#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { CULPRITS_MAX = 64, CAREFUL_RECORDS = 8192, CAREFUL_DOUBLES = 10, STACK_BYTES = 64 << 10, ROW_MAX = 3 };
#define NOTE_MAGIC 0x706e7432u   /* of this layout */
#define POOL       "plan-worker" /* engine/workers.c */

struct culprit {
    char topic[250]; /* "" = free */
    int32_t partition;
    int64_t offset;
    uint32_t print; /* of the record: another may come to stand at its offset */
    int32_t signal;
};

struct page {
    uint32_t magic, size;
    volatile sig_atomic_t running, signal;
    uint64_t careful; /* so many records more are computed one by one */
    uint32_t crashes; /* since careful was last over */
    uint32_t row;     /* culprits without a record computed between them */
    uint32_t next;    /* culprit to be overwritten */
    uint32_t print;   /* of the last record of now */
    uint64_t before;  /* records that will come again before those of now */
    char models[3][72];
    score_crash now;
    struct culprit culprits[CULPRITS_MAX];
};

struct score_note {
    struct page *page;
    char *path;
    int fd; /* locked: two processes that were given the same number do not write into one note */
};

static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
static struct sigaction before[sizeof fatal / sizeof *fatal];
static struct page *volatile noted; /* of the open note */

static _Thread_local volatile sig_atomic_t computes;

static bool is_of_pool(void)
{
    char name[16] = "";
    return prctl(PR_GET_NAME, name) == 0 && !strcmp(name, POOL);
}

void score_note_computes(bool on)
{
    computes = on;
}

/* Ours is a fault, or an abort() of our own; what somebody sent says nothing of a record. */
static void on_fatal(int sig, siginfo_t *info, void *context)
{
    struct page *p = noted;
    bool sent = info->si_code <= 0, by_us = sent && sig == SIGABRT && info->si_pid == getpid();
    if (p && p->running && (!sent || by_us) && (computes || is_of_pool()))
        p->signal = sig;
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (fatal[i] == sig)
            sigaction(sig, &before[i], NULL);
    if (sent) /* else it strikes again by itself */
        raise(sig);
}

static _Thread_local void *stack;

void score_note_thread(void)
{
    stack_t old;
    if (stack || sigaltstack(NULL, &old) < 0 || !(old.ss_flags & SS_DISABLE)) /* a sanitizer has given it one */
        return;
    void *at = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t s = {.ss_sp = at, .ss_size = STACK_BYTES};
    if (at != MAP_FAILED && sigaltstack(&s, NULL) == 0)
        stack = at;
}

void score_note_thread_ends(void)
{
    stack_t none = {.ss_flags = SS_DISABLE};
    if (!stack)
        return;
    sigaltstack(&none, NULL);
    munmap(stack, STACK_BYTES);
    stack = NULL;
}

static void hear_faults(bool on)
{
    struct sigaction sa = {.sa_sigaction = on_fatal, .sa_flags = SA_ONSTACK | SA_SIGINFO};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        sigaction(fatal[i], on ? &sa : &before[i], on ? &before[i] : NULL);
}

static void add_culprit(struct page *p)
{
    struct culprit *c = &p->culprits[p->next++ % CULPRITS_MAX];
    *c = (struct culprit){.partition = p->now.partition, .offset = p->now.offset, .print = p->print, .signal = p->signal};
    memcpy(c->topic, p->now.topic, sizeof c->topic);
}

/* What the page says of a process that is no more. Each crash doubles for how long care is taken: what was not committed comes again, and other
 * partitions' records may come before it. */
static void conclude(struct page *p, score_crash *ret)
{
    if (p->running && p->signal && p->now.records) {
        p->now.topic[sizeof p->now.topic - 1] = 0;
        *ret = p->now;
        ret->signal = p->signal;
        p->row += p->now.records == 1;
        if (p->now.records == 1 && p->row < ROW_MAX)
            add_culprit(p);
        p->crashes += p->crashes < CAREFUL_DOUBLES;
        p->careful = (CAREFUL_RECORDS + p->before + p->now.records) << (p->crashes - 1);
    }
    p->running = p->signal = 0;
}

/* Written before it is mapped: a disk that is full would else end us by a signal. */
static struct page *map(int fd)
{
    struct page empty = {.magic = NOTE_MAGIC, .size = sizeof empty}, there = {0};
    bool ours = pread(fd, &there, sizeof there, 0) == (ssize_t)sizeof there && there.magic == NOTE_MAGIC && there.size == sizeof there;
    if (!ours && pwrite(fd, &empty, sizeof empty, 0) != (ssize_t)sizeof empty)
        return NULL;
    if ((errno = posix_fallocate(fd, 0, sizeof empty)) != 0)
        return NULL;
    struct page *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    for (size_t i = 0; i < CULPRITS_MAX; i++)
        p->culprits[i].topic[sizeof p->culprits[i].topic - 1] = 0;
    for (int i = 0; i < 3; i++)
        p->models[i][sizeof p->models[i] - 1] = 0;
    return p;
}

score_note *score_note_open(const char *state_dir, const char *pipeline, int number, score_crash *ret_crash)
{
    PST_ASSERT(!noted);
    *ret_crash = (score_crash){0};
    char *dir = pst_fs_join(state_dir, "score"), *path = pst_sprintf("%s/%s.%d.note", dir, pipeline, number);
    int fd = pst_fs_mkdirs(dir, 0700, NULL) == 0 ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    struct page *p = fd >= 0 && pst_lock_try(fd, PST_LOCK_PLAIN) == 0 ? map(fd) : NULL;
    free(dir);
    if (!p)
        pst_log(PST_LOG_WARN, "score",
                "event=no_note pipeline=%s path=%s why=\"%s; a record that brings the process down will not be found\"", pipeline, path,
                strerror(errno));
    if (!p) {
        if (fd >= 0)
            close(fd);
        free(path);
        return NULL;
    }
    conclude(p, ret_crash);
    score_note *n = pst_alloc(sizeof *n);
    *n = (score_note){.page = p, .path = path, .fd = fd};
    score_note_thread();
    noted = p;
    hear_faults(true);
    return n;
}

void score_note_close(score_note *n)
{
    if (!n)
        return;
    hear_faults(false);
    noted = NULL;
    bool empty = !n->page->careful;
    for (size_t i = 0; empty && i < CULPRITS_MAX; i++)
        empty = !*n->page->culprits[i].topic;
    munmap(n->page, sizeof *n->page);
    if (empty) /* its name is ours as long as the slot is */
        unlink(n->path);
    close(n->fd);
    free(n->path);
    free(n);
}

static uint32_t print_of(const pst_record *r)
{
    uint32_t crc = pst_crc32c(0, &r->timestamp_ms, sizeof r->timestamp_ms);
    crc = r->key ? pst_crc32c(crc, r->key, r->key_len) : crc;
    return r->value ? pst_crc32c(crc, r->value, r->value_len) : crc;
}

void score_note_begins(score_note *n, uint64_t before_them, uint64_t records, const pst_record *last)
{
    if (!n)
        return;
    struct page *p = n->page;
    PST_ASSERT(!p->running);
    p->before = before_them;
    p->now.records = records;
    p->now.partition = last->partition;
    p->now.offset = last->offset;
    p->print = records == 1 ? print_of(last) : 0; /* of one alone it may be asked */
    snprintf(p->now.topic, sizeof p->now.topic, "%s", last->topic);
    p->running = 1;
}

void score_note_ends(score_note *n)
{
    if (!n || !n->page->running)
        return;
    struct page *p = n->page;
    p->running = 0;
    p->row = 0;
    p->careful -= p->careful < p->now.records ? p->careful : p->now.records;
    if (!p->careful)
        p->crashes = 0;
}

void score_note_model(score_note *n, int variant, const char *digest)
{
    PST_ASSERT(variant >= 0 && variant < 3);
    if (!n || !strncmp(n->page->models[variant], digest, sizeof n->page->models[variant] - 1))
        return;
    struct page *p = n->page;
    bool first = !*p->models[variant];
    snprintf(p->models[variant], sizeof p->models[variant], "%s", digest);
    if (first) /* nothing is known of another one */
        return;
    memset(p->culprits, 0, sizeof p->culprits);
    p->row = p->crashes = 0;
    p->careful = 0;
}

bool score_note_is_hopeless(const score_note *n)
{
    return n && n->page->row >= ROW_MAX;
}

bool score_note_careful(const score_note *n)
{
    return n && n->page->careful;
}

const char *score_note_culprit(const score_note *n, const pst_record *r)
{
    static char text[160];
    for (size_t i = 0; n && n->page->next && i < CULPRITS_MAX; i++) {
        const struct culprit *c = &n->page->culprits[i];
        if (c->offset != r->offset || c->partition != r->partition || strcmp(c->topic, r->topic) != 0 || c->print != print_of(r))
            continue;
        snprintf(text, sizeof text, "the scorer died of signal %d (%s) while it computed this record alone; it is not computed again",
                 (int)c->signal, strsignal(c->signal));
        return text;
    }
    return NULL;
}

void score_note_passed(score_note *n, const char *topic, int32_t partition, int64_t next)
{
    for (size_t i = 0; n && n->page->next && i < CULPRITS_MAX; i++) {
        struct culprit *c = &n->page->culprits[i];
        if (c->partition == partition && c->offset < next && !strcmp(c->topic, topic))
            *c = (struct culprit){0};
    }
}
