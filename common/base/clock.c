/* clock.c - the two clocks of POSIX and RFC 3339 without the locale. Local time is never shown: logs of several computers are laid side
 * by side. */
#include "common/base/clock.h"

#include "common/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t pst_now_us(void)
{
    return read_us(CLOCK_REALTIME);
}

int64_t pst_mono_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

int64_t pst_mono_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

struct timespec pst_mono_at(int64_t mono_us)
{
    return (struct timespec){.tv_sec = mono_us / 1000000, .tv_nsec = mono_us % 1000000 * 1000};
}

void pst_sleep_ms(int ms)
{
    struct timespec ts = {ms / 1000, (ms % 1000) * 1000000L};
    while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
        ;
}

char *pst_time_text(int64_t us, char buf[32])
{
    int64_t part = us % 1000000;
    time_t sec = (time_t)(us / 1000000);
    if (part < 0) {
        part += 1000000;
        sec--;
    }
    struct tm tm;
    gmtime_r(&sec, &tm);
    size_t n = strftime(buf, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf + n, 32 - n, ".%06dZ", (int)part);
    return buf;
}

int pst_time_parse(const char *text, int64_t *ret_us)
{
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (end != text && !*end && !errno && number >= 0 && number < 1e18) {
        double scale = 1; /* its size says its unit: seconds, milliseconds or microseconds since 1970 */
        if (number < 1e11)
            scale = 1e6;
        else if (number < 1e14)
            scale = 1e3;
        *ret_us = (int64_t)(number * scale);
        return 0;
    }
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"};
    struct tm tm = {0};
    const char *rest = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms && !rest; i++) {
        tm = (struct tm){0}; /* a form that fails has filled some of it */
        rest = strptime(text, forms[i], &tm);
    }
    if (!rest)
        return PST_EPARSE;
    int64_t us = 0, scale = 100000;
    if (*rest == '.')
        for (rest++; *rest >= '0' && *rest <= '9'; rest++, scale /= 10)
            us += (*rest - '0') * scale;
    int offset_min = 0;
    if (*rest == '+' || *rest == '-') {
        int h, m;
        if (sscanf(rest + 1, "%2d:%2d", &h, &m) != 2)
            return PST_EPARSE;
        offset_min = (*rest == '-' ? -1 : 1) * (h * 60 + m);
    } else if (*rest && strcmp(rest, "Z"))
        return PST_EPARSE;
    *ret_us = ((int64_t)timegm(&tm) - offset_min * 60) * 1000000 + us;
    return 0;
}

char *pst_span_text(int64_t us, char buf[32])
{
    if (us < 1000000)
        snprintf(buf, 32, us < 10000 ? "%.1f ms" : "%.0f ms", (double)us / 1e3);
    else if (us < 60 * 1000000LL)
        snprintf(buf, 32, "%.1f s", (double)us / 1e6);
    else if (us < 3600 * 1000000LL)
        snprintf(buf, 32, "%d min %d s", (int)(us / 60000000), (int)(us / 1000000 % 60));
    else
        snprintf(buf, 32, "%d h %d min", (int)(us / 3600000000LL), (int)(us / 60000000 % 60));
    return buf;
}
