/* proc_stat.c - /proc read as text, without a library: five small files whose forms the kernel keeps stable. What a container hides (disks,
 * network) is marked as not there instead of being 0, and counters that went backwards count as still, so a chart shows no spike for a disk that
 * was plugged in. */
#include "producers/sources/proc_stat.h"

#include "common/base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 4 << 20 };

/* /proc files have no size: read to the end, bounded. */
static int read_file(const char *proc, const char *name, pst_buf *b, pst_err *err)
{
    char *path = pst_fs_join(proc, name);
    pst_buf_done(b); /* the file before */
    int rc = pst_fs_read(path, FILE_MAX, b, err);
    free(path);
    return rc;
}

/* The line that begins with word and a blank, behind the blank; NULL = none. */
static const char *line_of(const char *text, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = text; p; p = (p = strchr(p, '\n')) ? p + 1 : NULL)
        if (!strncmp(p, word, len) && (p[len] == ' ' || p[len] == '\t'))
            return p + len;
    return NULL;
}

static double number_of(const char *text, const char *word)
{
    const char *p = line_of(text, word);
    return p ? strtod(p, NULL) : 0;
}

static int read_stat(const char *text, source_proc_sample *s, pst_err *err)
{
    double t[8] = {0}; /* user nice system idle iowait irq softirq steal */
    const char *p = line_of(text, "cpu");
    for (int i = 0; p && i < 8; i++) {
        char *end;
        t[i] = strtod(p, &end);
        p = end > p ? end : NULL;
    }
    if (!line_of(text, "cpu"))
        return pst_err_set(err, PST_EPARSE, PST_CLASS_FATAL, "sys", 0, "/proc/stat has no line of CPU times; is this Linux?");
    s->user = t[0] + t[1];
    s->system = t[2] + t[5] + t[6] + t[7];
    s->idle = t[3];
    s->iowait = t[4];
    s->context_switches = number_of(text, "ctxt");
    s->interrupts = number_of(text, "intr"); /* the first number is the sum */
    s->running = (int)number_of(text, "procs_running");
    s->blocked = (int)number_of(text, "procs_blocked");
    return 0;
}

/* Whole disks only: a partition's sectors are its disk's, a mapped device's are those of what it lies on. */
static bool whole_disk(const char *proc, const char *name)
{
    static const char *const not_disks[] = {"loop", "ram", "dm-", "md", "zram", "sr", "fd", "nbd"};
    for (size_t i = 0; i < sizeof not_disks / sizeof *not_disks; i++)
        if (!strncmp(name, not_disks[i], strlen(not_disks[i])))
            return false;
    char *path = strcmp(proc, "/proc") ? pst_sprintf("%s/sys/block/%s", proc, name) : pst_sprintf("/sys/block/%s", name);
    bool yes = pst_fs_exists(path);
    free(path);
    return yes;
}

static void read_disks(const char *proc, const char *text, source_proc_sample *s)
{
    char name[64];
    double read, written;
    for (const char *p = text; *p; p++) {
        if (sscanf(p, "%*d %*d %63s %*f %*f %lf %*f %*f %*f %lf", name, &read, &written) == 3 && whole_disk(proc, name)) {
            s->has_disk = true;
            s->sectors_read += read;
            s->sectors_written += written;
        }
        if (!(p = strchr(p, '\n')))
            break;
    }
}

static void read_network(const char *text, source_proc_sample *s)
{
    char name[64];
    double rx, tx;
    for (const char *p = text; *p; p++) {
        if (sscanf(p, " %63[^: ]: %lf %*f %*f %*f %*f %*f %*f %*f %lf", name, &rx, &tx) == 3 && strcmp(name, "lo")) {
            s->has_network = true;
            s->rx_bytes += rx;
            s->tx_bytes += tx;
        }
        if (!(p = strchr(p, '\n')))
            break;
    }
}

int source_proc_read(const char *proc, int64_t mono_us, source_proc_sample *ret_sample, pst_err *err)
{
    source_proc_sample s = {.mono_us = mono_us};
    pst_buf b = {0};
    int rc = read_file(proc, "stat", &b, err);
    if (!rc)
        rc = read_stat(b.data ? b.data : "", &s, err);
    if (!rc)
        rc = read_file(proc, "loadavg", &b, err);
    if (!rc)
        s.load1 = strtod(b.data ? b.data : "", NULL);
    if (!rc)
        rc = read_file(proc, "meminfo", &b, err);
    if (!rc && b.data) {
        s.memory_total = number_of(b.data, "MemTotal:");
        s.memory_available = number_of(b.data, "MemAvailable:");
        s.memory_cached = number_of(b.data, "Cached:");
    }
    if (!rc && read_file(proc, "diskstats", &b, NULL) == 0 && b.data) /* a container may have none: then there is no disk */
        read_disks(proc, b.data, &s);
    if (!rc && read_file(proc, "net/dev", &b, NULL) == 0 && b.data)
        read_network(b.data, &s);
    pst_buf_done(&b);
    if (!rc)
        *ret_sample = s;
    return rc;
}

static double risen(double from, double to)
{
    return to > from ? to - from : 0;
}

void source_proc_rates_of(const source_proc_sample *from, const source_proc_sample *to, source_proc_rates *ret)
{
    double seconds = (double)(to->mono_us - from->mono_us) / 1e6;
    double user = risen(from->user, to->user), system = risen(from->system, to->system), iowait = risen(from->iowait, to->iowait),
           idle = risen(from->idle, to->idle), all = user + system + iowait + idle;
    *ret = (source_proc_rates){0};
    if (all > 0) {
        ret->user = user / all;
        ret->system = system / all;
        ret->iowait = iowait / all;
        ret->idle = idle / all;
    }
    if (seconds <= 0)
        return;
    ret->context_switches = risen(from->context_switches, to->context_switches) / seconds;
    ret->interrupts = risen(from->interrupts, to->interrupts) / seconds;
    ret->sectors_read = risen(from->sectors_read, to->sectors_read) / seconds;
    ret->sectors_written = risen(from->sectors_written, to->sectors_written) / seconds;
    ret->rx_bytes = risen(from->rx_bytes, to->rx_bytes) / seconds;
    ret->tx_bytes = risen(from->tx_bytes, to->tx_bytes) / seconds;
}

/* Have the counters of CPU time moved? Without a tick between them two samples tell no shares. */
static bool ticked(const source_proc_sample *from, const source_proc_sample *to)
{
    return risen(from->user, to->user) + risen(from->system, to->system) + risen(from->iowait, to->iowait) + risen(from->idle, to->idle) >
           0;
}

static bool spans(const source_proc_window *w, const source_proc_sample *from, const source_proc_sample *to)
{
    return from->mono_us <= to->mono_us - w->window_us && ticked(from, to);
}

/* Invariant: samples are in order of time, and only the first spans the window. */
bool source_proc_window_add(source_proc_window *w, const source_proc_sample *s, source_proc_sample *ret_from)
{
    PST_ASSERT(w->n <= PST_PROC_WINDOW_MAX && w->first < PST_PROC_WINDOW_MAX);
    while (w->n > 1 && spans(w, &w->at[(w->first + 1) % PST_PROC_WINDOW_MAX], s)) { /* the next one does, too */
        w->first = (w->first + 1) % PST_PROC_WINDOW_MAX;
        w->n--;
    }
    bool full = w->n && (spans(w, &w->at[w->first], s) || w->n == PST_PROC_WINDOW_MAX);
    if (full)
        *ret_from = w->at[w->first];
    if (w->n == PST_PROC_WINDOW_MAX) {
        w->first = (w->first + 1) % PST_PROC_WINDOW_MAX;
        w->n--;
    }
    w->at[(w->first + w->n++) % PST_PROC_WINDOW_MAX] = *s;
    return full;
}
