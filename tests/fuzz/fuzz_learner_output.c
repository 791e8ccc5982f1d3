/* fuzz_learner_output.c - a learner writes what it likes: lines are valid and bounded however the bytes are cut, metrics parse or do not. */
#include "lcm/supervisor/lines.h"
#include "lcm/supervisor/metric_line.h"

#include "common/base/err.h"

#include <jansson.h>
#include <string.h>

static void on_line(void *arg, const char *text, size_t len)
{
    pst_metric_point p;
    const char *why;
    *(size_t *)arg += 1;
    PST_ASSERT(strlen(text) == len && len <= 3 * PST_LINE_MAX + 64);
    json_t *valid = json_stringn(text, len); /* checks UTF-8 */
    PST_ASSERT(valid);
    json_decref(valid);
    if (sup_metric_line(text, len, 1, &p))
        pst_event_clear(&pst_metric_point_type, &p);
    if (sup_emetrics_line(text, len, 1, &p, &why))
        pst_event_clear(&pst_metric_point_type, &p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t whole = 0, pieces = 0, step = size ? data[0] % 13 + 1 : 1;
    sup_lines a = {.line = on_line, .arg = &whole}, b = {.line = on_line, .arg = &pieces};
    sup_lines_feed(&a, (const char *)data, size);
    sup_lines_end(&a);
    for (size_t at = 0; at < size; at += step)
        sup_lines_feed(&b, (const char *)data + at, size - at < step ? size - at : step);
    sup_lines_end(&b);
    PST_ASSERT(whole == pieces);
    return 0;
}
