/* metric_line.c - a line that is not ours is a log line, never an error: a learner may print whatever looks like JSON. So nothing here fails:
 * what does not fit is left out, or the line stays an ordinary one. */
#include "lcm/supervisor/metric_line.h"

#include "common/base/clock.h"
#include "common/base/json.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* JSON has no NaN and Infinity, but every Python script that trains writes them: bare words become strings. */
static void quote_bare_words(const char *text, size_t len, pst_buf *out)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    bool inside = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (inside && c == '\\' && i + 1 < len) {
            pst_buf_addc(out, c);
            c = text[++i];
        } else if (c == '"') {
            inside = !inside;
        } else if (!inside && (c == 'N' || c == 'I' || c == '-')) {
            size_t w = 0;
            for (; w < 3; w++)
                if (len - i >= strlen(words[w]) && !memcmp(text + i, words[w], strlen(words[w])))
                    break;
            if (w < 3) {
                pst_buf_printf(out, "\"%s\"", words[w]);
                i += strlen(words[w]) - 1;
                continue;
            }
        }
        pst_buf_addc(out, c);
    }
}

static json_t *parse(const char *text, size_t len)
{
    pst_buf b = {0};
    quote_bare_words(text, len, &b);
    json_t *j = json_loadb(b.data ? b.data : "", b.len, JSON_REJECT_DUPLICATES, NULL);
    pst_buf_done(&b);
    if (j && !json_is_object(j)) {
        json_decref(j);
        j = NULL;
    }
    return j;
}

static bool number(const json_t *v, double *ret)
{
    const char *s = json_string_value(v);
    if (json_is_number(v)) {
        *ret = json_number_value(v);
        return true;
    }
    if (s && !strcmp(s, "NaN"))
        *ret = NAN;
    else if (s && !strcmp(s, "Infinity"))
        *ret = INFINITY;
    else if (s && !strcmp(s, "-Infinity"))
        *ret = -INFINITY;
    else
        return false;
    return true;
}

/* Seconds, milliseconds or microseconds since 1970, or RFC 3339 text. */
static int64_t time_of(const json_t *v, int64_t now_us)
{
    int64_t us;
    char *text = json_is_string(v)   ? pst_strdup(json_string_value(v))
                 : json_is_number(v) ? pst_sprintf("%.6f", json_number_value(v))
                                     : NULL;
    if (!text || pst_time_parse(text, &us) < 0)
        us = now_us;
    free(text);
    return us;
}

static void add_value(pst_metric_point *p, const char *key, double v)
{
    if (p->n_values < PST_METRIC_VALUES_MAX)
        pst_dbl_map_set(&p->values, &p->n_values, key, v);
}

static void set_step(pst_metric_point *p, double v)
{
    if (isfinite(v) && fabs(v) < 9e15) {
        p->has_step = true;
        p->step = (int64_t)v;
    }
}

static void set_epoch(pst_metric_point *p, double v)
{
    p->has_epoch = true;
    p->epoch = v;
}

/* A line that is an object with "penstock": what; NULL for every other line. */
static json_t *announced(const char *text, size_t len, const char *what)
{
    while (len && isspace((unsigned char)*text)) {
        text++;
        len--;
    }
    if (!len || *text != '{' || !memmem(text, len, "\"penstock\"", 10))
        return NULL;
    json_t *j = parse(text, len);
    if (!j || strcmp(pst_json_str(j, "penstock", ""), what)) {
        json_decref(j);
        return NULL;
    }
    return j;
}

int sup_metric_line(const char *text, size_t len, int64_t now_us, pst_metric_point *ret_point)
{
    json_t *j = announced(text, len, "metrics");
    if (!j)
        return 0;
    pst_metric_point p = {.time = time_of(json_object_get(j, "time"), now_us), .group = pst_strdup(pst_json_str(j, "group", "train"))};
    const char *key;
    json_t *v;
    double d;
    json_object_foreach(j, key, v)
    {
        bool is_number = number(v, &d);
        if (!strcmp(key, "time") || !strcmp(key, "group") || !strcmp(key, "penstock"))
            continue;
        if (!strcmp(key, "step") && is_number)
            set_step(&p, d);
        else if (!strcmp(key, "epoch") && is_number)
            set_epoch(&p, d);
        else if (is_number)
            add_value(&p, key, d);
    }
    json_decref(j);
    *ret_point = p;
    return 1;
}

int sup_checkpoint_line(const char *text, size_t len, int64_t now_us, pst_process_report *ret_report)
{
    json_t *j = announced(text, len, "checkpoint");
    if (!j)
        return 0;
    pst_process_report r = {.type = PST_REPORT_TYPE_CHECKPOINT, .time = time_of(json_object_get(j, "time"), now_us)};
    const char *key;
    json_t *v;
    json_object_foreach(j, key, v)
    {
        if (!strcmp(key, "time") || !strcmp(key, "penstock") || r.n_details == PST_CHECKPOINT_DETAILS_MAX || json_is_object(v) ||
            json_is_array(v) || json_string_length(v) > 300 || strlen(key) > 100)
            continue;
        char *value = json_is_string(v) ? pst_strdup(json_string_value(v)) : pst_json_text(v);
        pst_str_map_set(&r.details, &r.n_details, key, value);
        free(value);
    }
    json_decref(j);
    const char *epoch = pst_str_map_get(r.details, r.n_details, "epoch"), *step = pst_str_map_get(r.details, r.n_details, "step");
    r.reason = pst_sprintf("checkpoint%s%s%s%s", epoch ? " of epoch " : "", epoch ? epoch : "",
                           step ? (epoch ? ", step " : " of step ") : "", step ? step : "");
    r.process = r.reporter = r.training_id = NULL;
    *ret_report = r;
    return 1;
}

/* FfDL's "any": {"type": 0…3, "value": …}, also a bare scalar; numbers may be written as strings. */
static bool any_number(const json_t *v, double *ret)
{
    if (json_is_object(v))
        v = json_object_get(v, "value");
    if (number(v, ret))
        return true;
    const char *s = json_string_value(v);
    char *end;
    if (!s || !*s)
        return false;
    *ret = strtod(s, &end);
    while (isspace((unsigned char)*end))
        end++;
    return end != s && !*end;
}

int sup_emetrics_line(const char *text, size_t len, int64_t now_us, pst_metric_point *ret_point, const char **ret_why)
{
    json_t *j = parse(text, len);
    const json_t *values = json_object_get(j, "values"), *etimes = json_object_get(j, "etimes");
    if (!j || !json_is_object(values)) {
        *ret_why = j ? "it has no object \"values\"" : "it is no JSON object";
        json_decref(j);
        return 0;
    }
    pst_metric_point p = {.time = time_of(json_object_get(json_object_get(j, "meta"), "time"), now_us),
                          .group = pst_strdup(pst_json_str(j, "grouplabel", "train"))};
    const char *key;
    json_t *v;
    double d;
    json_object_foreach((json_t *)values, key, v) if (any_number(v, &d)) add_value(&p, key, d);
    json_object_foreach((json_t *)etimes, key, v)
    {
        if (!any_number(v, &d))
            continue;
        if (!strcmp(key, "iteration") || !strcmp(key, "step"))
            set_step(&p, d);
        else if (!strcmp(key, "epoch"))
            set_epoch(&p, d);
    }
    json_decref(j);
    *ret_point = p;
    return 1;
}
