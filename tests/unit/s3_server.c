/* s3_server.c - one thread, one connection after the other; answers are raw bytes, so that they can be wrong in every way. */
#include "s3_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static bool more(int fd, pst_buf *in)
{
    char part[65536];
    ssize_t n = read(fd, part, sizeof part);
    if (n > 0)
        pst_buf_add(in, part, (size_t)n);
    return n > 0;
}

static void serve(s3_server *s, int fd)
{
    pst_buf in = {0}, out = {0};
    char *end = NULL;
    while (!(end = in.data ? strstr(in.data, "\r\n\r\n") : NULL))
        if (!more(fd, &in)) {
            pst_buf_done(&in);
            return;
        }
    size_t head = (size_t)(end - in.data) + 4, len = 0;
    const char *length = strcasestr(in.data, "\r\nContent-Length:");
    if (length && length < end)
        len = strtoul(length + 17, NULL, 10);
    while (in.len < head + len && more(fd, &in)) {
    }
    char method[16], target[4096];
    if (sscanf(in.data, "%15s %4095s", method, target) != 2)
        abort();
    pst_buf body = {.data = in.data + head, .len = in.len - head};
    char *headers = pst_strndup(in.data, head);
    s->answer(s, ++s->requests, method, target, headers, &body, &out);
    free(headers);
    size_t done = 0;
    while (done < out.len) {
        ssize_t n = send(fd, out.data + done, out.len - done, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    while (!out.len && !s->over && recv(fd, target, 1, MSG_DONTWAIT) < 0)
        usleep(5000);
    pst_buf_done(&out);
    pst_buf_done(&in);
}

static void *serve_all(void *arg)
{
    s3_server *s = arg;
    while (!s->over) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        if (poll(&p, 1, 20) <= 0)
            continue;
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0)
            continue;
        serve(s, fd);
        close(fd);
    }
    return NULL;
}

void s3_server_start(s3_server *s, s3_answer *answer, void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    *s = (s3_server){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .answer = answer, .arg = arg};
    int rc = bind(s->fd, (struct sockaddr *)&a, sizeof a) | listen(s->fd, 20) | getsockname(s->fd, (struct sockaddr *)&a, &n);
    if (rc)
        abort();
    s->port = ntohs(a.sin_port);
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", s->port);
    pthread_create(&s->thread, NULL, serve_all, s);
}

void s3_server_stop(s3_server *s)
{
    s->over = true;
    pthread_join(s->thread, NULL);
    close(s->fd);
}

void s3_say(pst_buf *out, const char *status, const char *headers, const char *body, size_t len, long claimed)
{
    pst_buf_printf(out, "HTTP/1.1 %s x\r\nConnection: close\r\n%sContent-Length: %ld\r\n\r\n", status, headers,
                   claimed < 0 ? (long)len : claimed);
    pst_buf_add(out, body, len);
}

void s3_say_list(pst_buf *out, const char *const *keys, size_t n, long bytes, const char *next)
{
    pst_buf xml = {0};
    pst_buf_printf(&xml, "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3\"><Name>b</Name><IsTruncated>%s</IsTruncated>",
                   next ? "true" : "false");
    if (next)
        pst_buf_printf(&xml, "<NextContinuationToken>%s</NextContinuationToken>", next);
    for (size_t i = 0; i < n; i++)
        pst_buf_printf(&xml, "<Contents><Key>%s</Key><Size>%ld</Size><Owner><ID>x</ID></Owner></Contents>", keys[i], bytes);
    pst_buf_adds(&xml, "</ListBucketResult>");
    s3_say(out, "200", "", xml.data, xml.len, -1);
    pst_buf_done(&xml);
}
