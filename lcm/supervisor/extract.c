/* extract.c - a window of at most `line_lookahead` lines; a match begins at the start of its first line. FfDL tries one start only when that line is
 * the oldest, on all the lines behind it, and throws the rest of the window away; so it loses values that stand close together, and a greedy
 * ".+" takes the last number of four lines. Here each line is a start, tried as soon as it is there: a match takes the lines it covers, no match
 * drops the first line, and only a pattern that further lines could still complete waits for them.
 *
 * A pattern may be one that takes for ever. Its steps are bounded by common/base/regex.c; one that meets the bound LIMIT_HITS_MAX times is switched
 * off for the rest of the run, because whoever reads these lines reads the learner's pipe. */
#include "lcm/supervisor/extract.h"

#include "common/base/clock.h"
#include "common/base/regex.h"
#include "lcm/supervisor/metric_line.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define LINE_BYTES_MAX 8192 /* of a line, what is searched */
#define LIMIT_HITS_MAX 20

typedef struct rule {
    const pst_collect_group *group;
    pst_regex *regex;
    int hits; /* of the bound */
    bool off;
} rule;

struct sup_rules {
    const pst_collect *collect;
    sup_extract_to to;
    rule *at;
    bool said_cut, said_text;
};

struct sup_extract {
    sup_rules *rules;
    pst_buf window; /* whole lines, each with its newline */
    int lines;
};

int sup_rules_new(const pst_collect *c, const sup_extract_to *to, sup_rules **ret_rules, pst_err *err)
{
    sup_rules *r = pst_alloc(sizeof *r);
    int rc = 0;
    *r = (sup_rules){.collect = c, .to = *to, .at = pst_alloc((c->n_groups + 1) * sizeof *r->at)};
    for (size_t i = 0; i < c->n_groups && !rc; i++) {
        r->at[i].group = &c->groups[i];
        rc = pst_regex_new(c->groups[i].pattern, &r->at[i].regex, err);
    }
    if (rc < 0)
        sup_rules_free(r);
    else
        *ret_rules = r;
    return rc;
}

void sup_rules_free(sup_rules *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->collect->n_groups; i++)
        pst_regex_free(r->at[i].regex);
    free(r->at);
    free(r);
}

__attribute__((format(printf, 2, 3))) static void say(const sup_rules *r, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->to.say(r->to.arg, text);
}

/* ---- one match ---------------------------------------------------------------------------------------------------------------- */

/* Text as a number: decimal, 0x…, nan, inf; blanks around it. */
static bool number(const char *at, size_t len, double *ret)
{
    char text[64], *end;
    if (!len || len >= sizeof text)
        return false;
    memcpy(text, at, len);
    text[len] = 0;
    *ret = strtod(text, &end);
    return end != text && !end[strspn(end, " \t\r\n")];
}

/* "I0315 10:22:33.123456" has no year and no zone: glog writes local time, and of the years the one that makes it no later than tomorrow. */
static bool glog_time(const char *text, int64_t now_us, int64_t *ret_us)
{
    struct tm t = {.tm_isdst = -1}, now;
    time_t seconds = (time_t)(now_us / 1000000), at;
    char letter, fraction[8] = {0};
    if (sscanf(text, "%c%2d%2d %d:%d:%d.%6[0-9]", &letter, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min, &t.tm_sec, fraction) != 7 ||
        !localtime_r(&seconds, &now))
        return false;
    t.tm_mon--;
    t.tm_year = now.tm_year;
    struct tm again = t;
    at = mktime(&t);
    if (at > seconds + 86400) {
        again.tm_year--;
        at = mktime(&again);
    }
    for (size_t n = strlen(fraction); n < 6; n++)
        fraction[n] = '0'; /* the array is zeros behind it */
    *ret_us = (int64_t)at * 1000000 + atoi(fraction);
    return at > 0;
}

static int64_t time_of(const rule *u, const char *text)
{
    const char *at;
    size_t len;
    char stamp[64];
    int64_t now = pst_now_us(), us;
    if (!u->group->stamp || !pst_regex_group(u->regex, text, u->group->stamp, &at, &len) || len >= sizeof stamp)
        return now;
    memcpy(stamp, at, len);
    stamp[len] = 0;
    if (strchr("EFIW", *stamp))
        return glog_time(stamp, now, &us) ? us : now;
    return pst_time_parse(stamp, &us) == 0 ? us : now;
}

typedef enum { ABSENT, NO_NUMBER, NUMBER } value_found;

/* ABSENT: the group stands in an alternative that took no part. */
static value_found value_of(const rule *u, const pst_collect_value *v, const char *text, double *ret)
{
    const char *at = v->text;
    size_t len = strlen(v->text);
    if (v->is_capture && !pst_regex_group(u->regex, text, v->text, &at, &len))
        return ABSENT;
    return number(at, len, ret) ? NUMBER : NO_NUMBER;
}

/* A point is numbers: what is text (STRING) stays in the log line, and is said once. */
static void publish(sup_rules *r, const rule *u, const char *text)
{
    pst_metric_point p = {.time = time_of(u, text), .group = u->group->label};
    for (size_t i = 0; i < u->group->n_values; i++) {
        const pst_collect_value *v = &u->group->values[i];
        double d;
        value_found found = value_of(u, v, text, &d);
        if (found == ABSENT)
            continue;
        if (found == NO_NUMBER) {
            if (!r->said_text)
                say(r, "evaluation_metrics: %.80s of group %.80s is no number here and is left out of its points", v->name,
                    u->group->label);
            r->said_text = true;
        } else if (v->is_time && (!strcmp(v->name, "iteration") || !strcmp(v->name, "step")) && isfinite(d) && fabs(d) < 9e15) {
            p.has_step = true;
            p.step = (int64_t)d;
        } else if (v->is_time && !strcmp(v->name, "epoch")) {
            p.has_epoch = true;
            p.epoch = d;
        } else if (p.n_values < PST_METRIC_VALUES_MAX) {
            pst_dbl_map_set(&p.values, &p.n_values, v->name, d);
        }
    }
    if (p.n_values)
        r->to.point(r->to.arg, &p);
    p.group = NULL; /* borrowed */
    pst_event_clear(&pst_metric_point_type, &p);
}

/* ---- the window ---------------------------------------------------------------------------------------------------------------- */

static void met_the_bound(const sup_rules *r, rule *u)
{
    if (++u->hits < LIMIT_HITS_MAX)
        return;
    u->off = true;
    say(r,
        "evaluation_metrics: the regex of group %.80s took too many steps %d times and is switched off; repeats inside repeats like (a+)+ "
        "do so: "
        "make it match in one way only",
        u->group->label, u->hits);
}

static void drop(sup_extract *x, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        x->lines -= x->window.data[i] == '\n';
    memmove(x->window.data, x->window.data + bytes, x->window.len - bytes);
    x->window.len -= bytes;
}

static size_t line_end(const sup_extract *x, size_t from)
{
    const char *newline = memchr(x->window.data + from, '\n', x->window.len - from);
    return newline ? (size_t)(newline - x->window.data) + 1 : x->window.len;
}

/* The first group that matches wins (FfDL); one before it that more lines may complete makes the others wait no longer than the window. */
static pst_regex_verdict match(sup_extract *x, const rule **ret_rule)
{
    sup_rules *r = x->rules;
    pst_regex_verdict best = PST_REGEX_NO, v;
    for (size_t i = 0; i < r->collect->n_groups; i++) {
        rule *u = &r->at[i];
        if (u->off)
            continue;
        if (pst_regex_match(u->regex, x->window.data, x->window.len, &v) < 0) {
            met_the_bound(r, u);
            continue;
        }
        if (v == PST_REGEX_YES && !pst_regex_end(u->regex))
            continue; /* an empty match would take no line and come again */
        if (v == PST_REGEX_YES) {
            *ret_rule = u;
            return v;
        }
        if (v == PST_REGEX_MORE)
            best = v;
    }
    return best;
}

/* Looks at the window until it is empty or waits for lines. */
static void look(sup_extract *x, bool last)
{
    while (x->lines) {
        const rule *u = NULL;
        pst_regex_verdict v = match(x, &u);
        if (v == PST_REGEX_YES) {
            publish(x->rules, u, x->window.data);
            drop(x, line_end(x, pst_regex_end(u->regex) - 1));
            continue;
        }
        if (v == PST_REGEX_MORE && !last && x->lines < x->rules->collect->lookahead)
            return;
        drop(x, line_end(x, 0));
    }
}

sup_extract *sup_extract_new(sup_rules *r)
{
    sup_extract *x = pst_alloc(sizeof *x);
    *x = (sup_extract){.rules = r};
    return x;
}

void sup_extract_line(sup_extract *x, const char *text, size_t len)
{
    if (len > LINE_BYTES_MAX) {
        if (!x->rules->said_cut)
            say(x->rules, "evaluation_metrics: of a line longer than %d bytes only its beginning is searched", LINE_BYTES_MAX);
        x->rules->said_cut = true;
        for (len = LINE_BYTES_MAX; len && ((unsigned char)text[len] & 0xc0) == 0x80;)
            len--;
    }
    pst_buf_add(&x->window, text, len);
    pst_buf_addc(&x->window, '\n');
    x->lines++;
    look(x, false);
}

void sup_extract_end(sup_extract *x)
{
    if (x)
        look(x, true);
}

void sup_extract_free(sup_extract *x)
{
    if (!x)
        return;
    pst_buf_done(&x->window);
    free(x);
}
