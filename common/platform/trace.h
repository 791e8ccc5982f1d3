/* trace.h - following one request through all services: W3C Trace Context in the header `traceparent` of HTTP requests and of records.
 *
 *     00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
 *     version trace id (the same everywhere) parent id (of the step before)  flags
 *
 *     pst_trace_of_record(r, &came);
 *     pst_trace_child(&came, &ours);                            // same trace, a parent id of our own; came of none: a new trace
 *     out.n_headers = pst_trace_header(&ours, &headers[0]);
 *
 * A program that is started with TRACEPARENT in its environment goes on with that trace; a learner is. @thread any. */
#ifndef PST_COMMON_PLATFORM_TRACE_H
#define PST_COMMON_PLATFORM_TRACE_H

#include "common/base/err.h"

struct pst_buf;
struct pst_header;
struct pst_out;
struct pst_record;

#define PST_TRACE_HEADER "traceparent"
enum { PST_TRACE_LEN = 55, PST_TRACE_ID_AT = 3, PST_TRACE_ID_LEN = 32 };

typedef struct pst_trace {
    char text[PST_TRACE_LEN + 1]; /* "" = none */
} pst_trace;

/* By the letter of the recommendation; *ret is none where it is not kept. Of a version after 00 the part that 00 has is taken. */
bool pst_trace_parse(const char *text, size_t len, pst_trace *ret);
/* The next step of this trace; of none (or NULL): the first of a new one. of and ret may be the same. */
void pst_trace_child(const pst_trace *of, pst_trace *ret);
/* That of the record's header, or none. */
void pst_trace_of_record(const struct pst_record *r, pst_trace *ret);
/* That of the environment, or none. */
void pst_trace_of_environment(pst_trace *ret);
/* Fills one header, borrowed from t, unless it is none; returns how many. */
size_t pst_trace_header(const pst_trace *t, struct pst_header *ret_header);
/* The record of an event: value under key, by whose hash it finds its partition, with the trace's header, if there is one, in *header. All is
 * borrowed; what else a record has (opaque, time) is the caller's to add. */
void pst_trace_out(const pst_trace *t, const char *topic, const char *key, const struct pst_buf *value, struct pst_header *header,
                   struct pst_out *ret_out);

#endif
