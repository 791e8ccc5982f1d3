/* status.c - what the main thread does is noted here in a few fields under one lock, and a thread that does nothing else answers from them. The other
 * services answer between two steps of their loop; a run is no loop but a sequence, and its steps wait for whatever is away. The thread sleeps until
 * somebody asks, and blocks no signal of the others. */
#include "lcm/supervisor/status.h"

#include "common/base/clock.h"
#include "common/base/dump.h"
#include "common/base/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct sup_status {
    char *run_dir, *training_id, *process, *node;
    int generation;
    pst_dump *dump;
    pthread_t thread;
    int end_fd; /* readable: the thread ends */
    pthread_mutex_t lock;
    sup_phase phase;
    int64_t phase_us, trouble_us; /* since when; monotonic */
    char trouble[sizeof((pst_err *)0)->text];
    sup_learner_view learner;
    sup_outlet *outlet; /* asked with the lock held, so that it is not closed meanwhile; it never calls us */
};

static double seconds_since(int64_t us)
{
    return (double)(pst_mono_us() - us) / 1e6;
}

static json_t *learner_json(const sup_learner_view *v)
{
    json_t *j = json_pack("{s:i, s:I, s:I, s:I, s:I, s:b, s:b, s:b}", "pid", (int)v->pid, "lines", (json_int_t)v->lines, "bytes",
                          (json_int_t)v->bytes, "points", (json_int_t)v->points, "left_out", (json_int_t)v->left_out, "held", v->held,
                          "stopping", v->stopping, "leader_gone", v->leader_gone);
    if (v->deadline_us)
        json_object_set_new(j, "kill_in_seconds", json_real(-seconds_since(v->deadline_us)));
    return j;
}

static json_t *outlet_json(const sup_outlet_counts *c)
{
    json_t *j =
        json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "begun", c->begun, "acknowledged", (json_int_t)c->acked, "dropped",
                  (json_int_t)c->dropped, "reports", (json_int_t)c->reports, "waiting", (json_int_t)c->waiting, "waiting_bytes",
                  (json_int_t)c->waiting_bytes, "in_flight", (json_int_t)c->in_flight, "in_flight_bytes", (json_int_t)c->in_flight_bytes,
                  "spool_bytes", (json_int_t)c->spool_bytes, "unspooled_lines", (json_int_t)c->unspooled_lines);
    if (c->acked_us)
        json_object_set_new(j, "acknowledged_seconds_ago", json_real(seconds_since(c->acked_us)));
    if (*c->trouble) {
        json_object_set_new(j, "trouble", json_string(c->trouble));
        json_object_set_new(j, "trouble_seconds_ago", json_real(seconds_since(c->trouble_us)));
    }
    return j;
}

/* With the lock held. */
static const char *waits_for(const sup_status *s)
{
    switch (s->phase) {
    case SUP_PHASE_STARTING: return "settings, folders, and the isolation of the learner";
    case SUP_PHASE_DOWNLOADING: return "code and data of the job";
    case SUP_PHASE_MEETING: return "the addresses of the other processes of the gang";
    case SUP_PHASE_RUNNING:
        if (!s->learner.pid)
            return "the command to be started";
        return s->learner.stopping || s->learner.leader_gone ? "all that the command started to end, or the grace time to be over"
                                                             : "the command to end, or to be stopped";
    case SUP_PHASE_STORING: return "the model to be registered";
    case SUP_PHASE_PUBLISHING: return "results to be stored, and Kafka to acknowledge what is left";
    }
    return "";
}

void sup_status_fill(sup_status *s, json_t *to)
{
    static const char *const names[] = {"STARTING", "DOWNLOADING", "MEETING", "RUNNING", "STORING", "PUBLISHING"};
    pthread_mutex_lock(&s->lock);
    json_object_set_new(to, "training_id", json_string(s->training_id));
    json_object_set_new(to, "generation", json_integer(s->generation));
    json_object_set_new(to, "process", json_string(s->process));
    json_object_set_new(to, "node", json_string(s->node));
    json_object_set_new(to, "run_dir", json_string(s->run_dir));
    json_object_set_new(to, "phase", json_string(names[s->phase]));
    json_object_set_new(to, "phase_seconds", json_real(seconds_since(s->phase_us)));
    json_object_set_new(to, "waits_for", json_string(waits_for(s)));
    if (*s->trouble) {
        json_object_set_new(to, "trouble", json_string(s->trouble));
        json_object_set_new(to, "trouble_seconds_ago", json_real(seconds_since(s->trouble_us)));
    }
    if (s->learner.pid)
        json_object_set_new(to, "learner", learner_json(&s->learner));
    if (s->outlet) {
        sup_outlet_counts c;
        sup_outlet_count(s->outlet, &c);
        json_object_set_new(to, "outlet", outlet_json(&c));
    }
    pthread_mutex_unlock(&s->lock);
}

static void fill(void *arg, json_t *to)
{
    sup_status_fill(arg, to);
}

static void *answer_thread(void *arg)
{
    sup_status *s = arg;
    struct pollfd fds[2] = {{.fd = pst_dump_fd(), .events = POLLIN}, {.fd = s->end_fd, .events = POLLIN}};
    while (!fds[1].revents) {
        pst_dump_serve(s->dump); /* first: asked before there was a thread */
        if (poll(fds, 2, -1) < 0)
            fds[0].revents = fds[1].revents = 0; /* a signal */
        uint64_t n;
        ssize_t ignored =
            fds[0].revents ? read(fds[0].fd, &n, sizeof n) : 0; /* of two signals one may serve both: then no mark is left, but this */
        (void)ignored;
    }
    return NULL;
}

static void status_free(sup_status *s)
{
    pst_dump_free(s->dump);
    if (s->end_fd >= 0)
        close(s->end_fd);
    pthread_mutex_destroy(&s->lock);
    free(s->run_dir);
    free(s->training_id);
    free(s->process);
    free(s->node);
    free(s);
}

int sup_status_open(const pst_rundir_spec *spec, const char *run_dir, sup_status **ret_status, pst_err *err)
{
    sup_status *s = pst_alloc(sizeof *s);
    *s = (sup_status){.run_dir = pst_strdup(run_dir),
                      .training_id = pst_strdup(spec->training_id),
                      .process = pst_strdup(spec->process),
                      .node = pst_strdup(spec->node ? spec->node : ""),
                      .generation = spec->generation,
                      .end_fd = eventfd(0, EFD_CLOEXEC),
                      .phase_us = pst_mono_us()};
    pthread_mutex_init(&s->lock, NULL);
    int rc = s->end_fd < 0 ? pst_err_sys(err, errno, "eventfd for the state of a run") : 0;
    if (!rc)
        rc = pst_dump_new("supervisor", fill, s, &s->dump, err);
    int failed = rc ? 0 : pst_thread_start(&s->thread, "status", answer_thread, s);
    if (failed)
        rc = pst_err_sys(err, failed, "cannot start the thread that tells the state of a run");
    if (rc < 0)
        status_free(s);
    else
        *ret_status = s;
    return rc;
}

void sup_status_close(sup_status *s)
{
    if (!s)
        return;
    eventfd_write(s->end_fd, 1);
    pthread_join(s->thread, NULL);
    status_free(s);
}

void sup_status_outlet(sup_status *s, sup_outlet *outlet)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->outlet = outlet;
    pthread_mutex_unlock(&s->lock);
}

void sup_status_phase(sup_status *s, sup_phase phase)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    PST_ASSERT(phase > s->phase); /* a run never goes back */
    s->phase = phase;
    s->phase_us = pst_mono_us();
    *s->trouble = 0;
    pthread_mutex_unlock(&s->lock);
}

void sup_status_learner(sup_status *s, const sup_learner_view *v)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->learner = *v;
    pthread_mutex_unlock(&s->lock);
}

void sup_status_trouble(sup_status *s, const pst_err *why)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    snprintf(s->trouble, sizeof s->trouble, "%s", why->text);
    s->trouble_us = pst_mono_us();
    pthread_mutex_unlock(&s->lock);
}
