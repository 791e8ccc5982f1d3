/* fuzz_traceparent.c - a traceparent of whoever asks: what is taken is of the one form that goes on into headers, environments and logs, and the next
 * step is of the same trace; what is refused leaves nothing. */
#include "common/platform/trace.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pst_trace t, again, step;
    if (!pst_trace_parse((const char *)data, size, &t)) {
        PST_ASSERT(!*t.text);
        return 0;
    }
    PST_ASSERT(strlen(t.text) == PST_TRACE_LEN && strspn(t.text, "0123456789abcdef-") == PST_TRACE_LEN);
    PST_ASSERT(pst_trace_parse(t.text, PST_TRACE_LEN, &again) && !strcmp(again.text, t.text));
    pst_trace_child(&t, &step);
    PST_ASSERT(pst_trace_parse(step.text, PST_TRACE_LEN, &again) && !memcmp(step.text, t.text, PST_TRACE_ID_AT + PST_TRACE_ID_LEN));
    return 0;
}
