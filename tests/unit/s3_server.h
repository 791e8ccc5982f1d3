/* s3_server.h - an S3 server of a few lines for tests: every connection is one request, and what it answers, byte for byte, a test decides. */
#ifndef PST_TESTS_S3_SERVER_H
#define PST_TESTS_S3_SERVER_H

#include "common/base/buf.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct s3_server s3_server;
/* The n-th request (from 1), and where its answer goes. Nothing in it: it hangs until the client goes. */
typedef void s3_answer(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out);
struct s3_server {
    int fd, port;
    pthread_t thread;
    s3_answer *answer;
    void *arg;
    int requests;
    _Atomic bool over;
    char url[64];
};
void s3_server_start(s3_server *s, s3_answer *answer, void *arg);
void s3_server_stop(s3_server *s);
/* "HTTP/1.1 <status> x", headers (each with its line end), a Content-Length of claimed (-1 = the body's), the body. */
void s3_say(pst_buf *out, const char *status, const char *headers, const char *body, size_t len, long claimed);
/* A list of keys of `bytes` bytes each, one page; next NULL = the last. */
void s3_say_list(pst_buf *out, const char *const *keys, size_t n, long bytes, const char *next);

#endif
