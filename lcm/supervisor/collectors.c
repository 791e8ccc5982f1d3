/* collectors.c - the sources of a run's metric points and what each is read by. Learners of one job share $LOG_DIR, so what stands in its top has one
 * reader, the process of rank 0, and each process reads its own folder: a file is read once, by whoever is nearest to it. */
#include "lcm/supervisor/collectors.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "lcm/supervisor/extract.h"
#include "lcm/supervisor/follow.h"
#include "lcm/supervisor/lines.h"
#include "lcm/supervisor/metric_line.h"
#include "lcm/supervisor/tb_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRAIN_ROUNDS 256 /* at the end: so many MiB of one file */
#define METRICS_FILE "evaluation-metrics.txt"

typedef struct source {
    sup_collectors *c;
    sup_follow *follow;
    sup_lines lines;
    sup_extract *extract; /* NULL: lines of evaluation-metrics.txt */
} source;

struct sup_collectors {
    sup_run *run;
    void (*point)(void *arg, const pst_metric_point *point);
    void *arg;
    pst_collect rules;
    sup_rules *compiled;
    sup_extract *streams[2]; /* stdout, stderr */
    source **sources;
    size_t n_sources;
    sup_tb_files *events[PST_COLLECT_PATHS_MAX];
    size_t n_events;
    int *dirs; /* descriptors that sources rest on */
    size_t n_dirs;
};

static void say(void *arg, const char *text)
{
    sup_collectors *c = arg;
    sup_run_say(c->run, "%s", text);
}

static void publish(void *arg, const pst_metric_point *point)
{
    sup_collectors *c = arg;
    c->point(c->arg, point);
}

/* ---- files ---------------------------------------------------------------------------------------------------------------------- */

static void on_line(void *arg, const char *text, size_t len)
{
    source *s = arg;
    pst_metric_point p;
    const char *why;
    if (s->extract) {
        sup_extract_line(s->extract, text, len);
    } else if (len && sup_emetrics_line(text, len, pst_now_us(), &p, &why)) {
        publish(s->c, &p);
        pst_event_clear(&pst_metric_point_type, &p);
    } else if (len) {
        pst_log(PST_LOG_DEBUG, "supervisor", "event=metric_line_skipped file=%s reason=\"%s\"", sup_follow_name(s->follow), why);
    }
}

static void on_data(void *arg, const char *data, size_t len)
{
    sup_lines_feed(&((source *)arg)->lines, data, len);
}

static void on_anew(void *arg)
{
    source *s = arg;
    sup_lines_end(&s->lines);
    sup_extract_end(s->extract);
}

static int open_dir(sup_collectors *c, const char *dir)
{
    int fd = sup_run_open_shared(c->run, dir, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return -1;
    c->dirs = pst_array_one_more(c->dirs, c->n_dirs, sizeof *c->dirs);
    return c->dirs[c->n_dirs++] = fd;
}

static void add_file(sup_collectors *c, const char *dir, const char *name, bool extracts)
{
    int fd = open_dir(c, dir);
    if (fd < 0)
        return; /* ours, made a moment ago: there is no log either */
    source *s = pst_alloc(sizeof *s);
    *s = (source){.c = c, .extract = extracts ? sup_extract_new(c->compiled) : NULL, .lines = {.line = on_line, .arg = s}};
    s->follow = sup_follow_new(fd, name, true, true, &(sup_follow_to){on_data, on_anew, s});
    c->sources = pst_array_one_more(c->sources, c->n_sources, sizeof *c->sources);
    c->sources[c->n_sources++] = s;
}

/* ---- what the manifest asks for --------------------------------------------------------------------------------------------------- */

static const char *folder_of(const sup_run *r, pst_collect_root root)
{
    switch (root) {
    case PST_COLLECT_ROOT_LOG: return r->log_dir;
    case PST_COLLECT_ROOT_JOB_STATE: return r->job_state_dir;
    case PST_COLLECT_ROOT_RESULT: return r->result_dir;
    case PST_COLLECT_ROOT_CHECKPOINT: return r->checkpoint_dir;
    default: return r->code_dir;
    }
}

/* A path of `in`: $JOB_STATE_DIR/logs is $LOG_DIR. */
static pst_collect_root place_of(const char *path, const char **ret_name)
{
    pst_collect_root root = pst_collect_root_of(path, ret_name);
    if (root != PST_COLLECT_ROOT_JOB_STATE || strncmp(*ret_name, "logs", 4) || ((*ret_name)[4] && (*ret_name)[4] != '/'))
        return root;
    *ret_name += 4 + strspn(*ret_name + 4, "/");
    return PST_COLLECT_ROOT_LOG;
}

/* The folder of this process: ours in what processes share, and what stands in it. */
static bool is_own(const sup_run *r, pst_collect_root root, const char *name)
{
    size_t len = strlen(r->spec.process);
    return root == PST_COLLECT_ROOT_MODEL || (!strncmp(name, r->spec.process, len) && (!name[len] || name[len] == '/'));
}

/* A path that begins with the name of another process of the job: that one reads it. */
static bool is_anothers(void *arg, const char *name)
{
    const sup_run *r = ((sup_collectors *)arg)->run;
    char first[64];
    int index;
    size_t len = strcspn(name, "/");
    if (!len || len >= sizeof first)
        return false;
    memcpy(first, name, len);
    first[len] = 0;
    return strcmp(first, r->spec.process) != 0 && pst_manifest_role(&r->manifest, first, &index);
}

/* A process's own folder is read by itself, all else that they share by the first. */
static bool is_ours(sup_collectors *c, pst_collect_root root, const char *name)
{
    return is_own(c->run, root, name) || (c->run->rank == 0 && !is_anothers(c, name));
}

/* FfDL's learner shell writes the output to training-log.txt; here it is read as it comes, and the file is our copy of it. */
static bool is_the_output(const char *name)
{
    const char *slash = strrchr(name, '/');
    return !strcmp(slash ? slash + 1 : name, "training-log.txt");
}

static void add_extractors(sup_collectors *c)
{
    sup_run *r = c->run;
    pst_err err = {0};
    if (sup_rules_new(&c->rules, &(sup_extract_to){publish, say, c}, &c->compiled, &err) < 0) {
        sup_run_say(r, "evaluation_metrics: nothing is extracted: %s", err.text);
        return;
    }
    for (int i = 0; i < 2; i++)
        c->streams[i] = sup_extract_new(c->compiled);
    if (r->rank == 0)
        add_file(c, r->log_dir, "user_log.txt", true);
    add_file(c, r->own_log_dir, "user_log.txt", true);
    for (size_t i = 0; i < c->rules.n_paths; i++) {
        const char *name;
        pst_collect_root root = place_of(c->rules.paths[i], &name);
        bool twice = root == PST_COLLECT_ROOT_LOG && !strcmp(name, "user_log.txt");
        if (*name && !is_the_output(name) && !twice && is_ours(c, root, name))
            add_file(c, folder_of(r, root), name, true);
    }
}

static void add_events(sup_collectors *c, const char *path)
{
    const char *name;
    sup_run *r = c->run;
    pst_collect_root root = place_of(path, &name);
    int fd = is_own(r, root, name) || !is_anothers(c, name) ? open_dir(c, folder_of(r, root)) : -1;
    if (fd >= 0)
        c->events[c->n_events++] = sup_tb_files_new(&(sup_tb_files_conf){.dir_fd = fd,
                                                                         .name = name,
                                                                         .process = r->spec.process,
                                                                         .shared = !is_own(r, root, name),
                                                                         .first = r->rank == 0,
                                                                         .point = publish,
                                                                         .say = say,
                                                                         .anothers = is_anothers,
                                                                         .arg = c});
}

sup_collectors *sup_collectors_new(sup_run *r, void (*point)(void *arg, const pst_metric_point *point), void *arg)
{
    sup_collectors *c = pst_alloc(sizeof *c);
    *c = (sup_collectors){.run = r, .point = point, .arg = arg};
    if (r->rank == 0)
        add_file(c, r->log_dir, METRICS_FILE, false);
    add_file(c, r->own_log_dir, METRICS_FILE, false);
    pst_collect_read(r->manifest.evaluation_metrics, &c->rules, NULL, NULL);
    if (c->rules.kind == PST_COLLECT_REGEX)
        add_extractors(c);
    for (size_t i = 0; c->rules.kind == PST_COLLECT_TENSORBOARD && i < c->rules.n_paths; i++)
        add_events(c, c->rules.paths[i]);
    if (c->rules.kind == PST_COLLECT_TENSORBOARD && !c->rules.n_paths)
        add_events(c, "$LOG_DIR");
    return c;
}

void sup_collectors_line(sup_collectors *c, pst_log_stream stream, const char *text, size_t len)
{
    if (stream == PST_LOG_STREAM_STDOUT && c->streams[0])
        sup_extract_line(c->streams[0], text, len);
    else if (stream == PST_LOG_STREAM_STDERR && c->streams[1])
        sup_extract_line(c->streams[1], text, len);
}

void sup_collectors_poll(sup_collectors *c)
{
    for (size_t i = 0; i < c->n_sources; i++)
        sup_follow_poll(c->sources[i]->follow);
    for (size_t i = 0; i < c->n_events; i++)
        sup_tb_files_poll(c->events[i]);
}

static void end_source(source *s)
{
    for (int i = 0; i < DRAIN_ROUNDS && sup_follow_poll(s->follow); i++)
        ;
    on_anew(s);
    sup_follow_free(s->follow);
    sup_extract_free(s->extract);
    free(s);
}

void sup_collectors_end(sup_collectors *c)
{
    if (!c)
        return;
    for (int i = 0; i < 2; i++) {
        sup_extract_end(c->streams[i]);
        sup_extract_free(c->streams[i]);
    }
    for (size_t i = 0; i < c->n_sources; i++)
        end_source(c->sources[i]);
    for (size_t i = 0; i < c->n_events; i++)
        sup_tb_files_end(c->events[i]);
    for (size_t i = 0; i < c->n_dirs; i++)
        close(c->dirs[i]);
    sup_rules_free(c->compiled);
    pst_collect_done(&c->rules);
    free(c->sources);
    free(c->dirs);
    free(c);
}
