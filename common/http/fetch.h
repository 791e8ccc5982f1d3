/* fetch.h - one HTTP request at a time to somebody else's server, over a connection that is kept: http and https only, no redirect followed, every
 * answer bounded by its taker, a stop heard within a second. What an answer means is its caller's.
 *
 *     pst_fetch *f;
 *     pst_fetch_open(&f, &err);
 *     pst_fetch_do(f, &(pst_fetch_request){.method = "GET", .url = url, .timeout_ms = 5000, .take = take, .arg = &body}, &answer, &err);
 *
 * Credentials go into the request's header, never into an address. @thread one owner at a time. */
#ifndef PST_HTTP_FETCH_H
#define PST_HTTP_FETCH_H

#include "common/base/buf.h"
#include "common/base/err.h"

typedef struct pst_fetch pst_fetch;

typedef struct pst_fetch_request {
    const char *method; /* "HEAD": the answer has no body */
    const char *url;
    const char *const *headers; /* "Name: value"; "Name:" leaves out one that would be sent by itself */
    size_t n_headers;
    const void *body; /* NULL = none, or what give() gives */
    size_t body_len;
    size_t (*give)(void *arg, int64_t from, void *to, size_t len);  /* body_len bytes in all; 0 = no more can be had */
    bool (*take)(void *arg, const void *data, size_t len);          /* of the answer's body; false refuses the rest. NULL: none is taken */
    void (*header)(void *arg, const char *name, const char *value); /* of the answer, before its body, ":status" first; NULL */
    bool (*stopped)(void *arg);                                     /* NULL: pst_stop_forced */
    void *arg;
    const char *user, *password; /* NULL = none */
    const char *sign;            /* "aws:amz:<region>:s3": signed by them (AWS signature 4), in place of basic authentication */
    const char *ca_file;
    const char *cert_file, *key_file; /* by which this side is known, PEM; NULL = by none */
    int timeout_ms;                   /* all of it; 0 = as long as bytes come */
    int stall_s;                      /* no byte for so long ends it; 0 = none */
} pst_fetch_request;

typedef enum {
    PST_FETCH_ANSWERED,
    PST_FETCH_STOPPED,
    PST_FETCH_REFUSED,     /* take() did */
    PST_FETCH_NOT_TRUSTED, /* its certificate */
    PST_FETCH_AWAY         /* not reached, silent for too long, or gone in the middle of the answer */
} pst_fetch_end;

typedef struct pst_fetch_answer {
    pst_fetch_end end;
    long status;   /* ANSWERED; else what came before the end, or 0 */
    int native;    /* libcurl's number */
    char why[256]; /* of another end than ANSWERED */
} pst_fetch_answer;

/* Opens libcurl. FATAL where there is none. */
int pst_fetch_open(pst_fetch **ret_fetch, pst_err *err);
void pst_fetch_close(pst_fetch *f);
void pst_fetch_do(pst_fetch *f, const pst_fetch_request *r, pst_fetch_answer *ret_answer);
/* All but the unreserved characters of RFC 3986, 2.3, and those in keep, as %XX. free() */
char *pst_fetch_escape(const char *text, const char *keep);
/* %XX as its byte; anything else stands for itself. free() */
char *pst_fetch_unescape(const char *text, size_t len);

#endif
