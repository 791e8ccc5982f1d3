/* log.c - see log.h. Lines are built in a local buffer and leave in one write(2), so threads and processes do not mix them. */
#include "common/base/log.h"

#include "common/base/clock.h"
#include "common/base/term.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic int max_level = PST_LOG_INFO;

void pst_log_set_level(pst_log_level max)
{
    max_level = (int)max;
}

pst_log_level pst_log_get_level(void)
{
    return (pst_log_level)max_level;
}

static bool colour(void)
{
    static int on = -1;
    if (on < 0)
        on = isatty(2) && !getenv("NO_COLOR");
    return on;
}

void pst_log(pst_log_level level, const char *component, const char *fmt, ...)
{
    static const char *const names[] = {"ERROR", "WARN", "INFO", "DEBUG"};
    static const char *const tints[] = {"\033[31m", "\033[33m", "", "\033[2m"};
    if ((int)level > max_level)
        return;
    char line[2048];
    int64_t now = pst_now_us();
    time_t sec = (time_t)(now / 1000000);
    struct tm tm;
    gmtime_r(&sec, &tm);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
    bool tint = colour() && *tints[level];
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03dZ %s%s%s %s ", (int)(now / 1000 % 1000), tint ? tints[level] : "", names[level],
                          tint ? "\033[0m" : "", component);
    char text[1600];
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t len = m < 0 ? 0 : (size_t)m < sizeof text ? (size_t)m : sizeof text - 1;
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\n')
            text[i] = ' ';
    pst_buf shown = {0}; /* reasons quote records and learners: whoever reads a log on a terminal is not to be steered by them */
    pst_term_show(&shown, text, len);
    len = shown.len < sizeof line - n - 2 ? shown.len : sizeof line - n - 2;
    memcpy(line + n, shown.data ? shown.data : "", len);
    n += len;
    pst_buf_done(&shown);
    line[n++] = '\n';
    ssize_t ignored = write(2, line, n);
    (void)ignored;
}

void pst_log_err(const char *component, const pst_err *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        char component[24];
        int code;
        int64_t at;
    } last[16];
    static int next;
    int64_t now = pst_mono_us();
    bool repeat = false;
    pthread_mutex_lock(&lock);
    int slot = -1;
    for (int i = 0; i < 16; i++)
        if (last[i].code == err->code && !strncmp(last[i].component, component, sizeof last[i].component - 1))
            slot = i;
    if (slot >= 0 && err->cls == PST_CLASS_RETRY && now - last[slot].at < 10 * 1000000)
        repeat = true;
    else {
        if (slot < 0)
            slot = next++ % 16;
        snprintf(last[slot].component, sizeof last[slot].component, "%s", component);
        last[slot].code = err->code;
        last[slot].at = now;
    }
    pthread_mutex_unlock(&lock);
    if (!repeat)
        pst_log(err->cls == PST_CLASS_RETRY ? PST_LOG_WARN : PST_LOG_ERROR, component, "event=error code=%s origin=%s reason=\"%s\"",
                pst_code_name(err->code), err->origin, err->text);
}

void pst_say_err(const char *verb, const pst_err *err)
{
    fprintf(stderr, "penstock %s: %s\n", verb, err->text);
}
