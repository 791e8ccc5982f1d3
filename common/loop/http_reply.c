/* http_reply.c - replies of known length, problems, the head of every reply. */
#include "common/loop/http_priv.h"

#include "common/base/array.h"
#include "common/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* RFC 9110, section 15. A status that is not in the list gets the words of its class. */
const char *pst_http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {{101, "Switching Protocols"},
                 {200, "OK"},
                 {201, "Created"},
                 {202, "Accepted"},
                 {204, "No Content"},
                 {206, "Partial Content"},
                 {301, "Moved Permanently"},
                 {302, "Found"},
                 {303, "See Other"},
                 {304, "Not Modified"},
                 {307, "Temporary Redirect"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {406, "Not Acceptable"},
                 {408, "Request Timeout"},
                 {409, "Conflict"},
                 {410, "Gone"},
                 {411, "Length Required"},
                 {412, "Precondition Failed"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {416, "Range Not Satisfiable"},
                 {417, "Expectation Failed"},
                 {421, "Misdirected Request"},
                 {422, "Unprocessable Content"},
                 {426, "Upgrade Required"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {502, "Bad Gateway"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].status == status)
            return texts[i].text;
    if (status < 400)
        return "OK";
    return status < 500 ? "Bad Request" : "Internal Server Error";
}

static out_header *out_header_of(const pst_http_req *r, const char *name)
{
    for (size_t i = 0; i < r->n_headers; i++)
        if (!strcasecmp(r->headers[i].name, name))
            return &r->headers[i];
    return NULL;
}

static void give_value(out_header *h, const char *value)
{
    char *to = h->value = pst_strdup(value);
    for (const char *p = value; *p; p++) /* response splitting ends here */
        if ((unsigned char)*p >= 0x20 && *p != 0x7f)
            *to++ = *p;
    *to = 0;
}

void pst_http_add_header(pst_http_req *r, const char *name, const char *value)
{
    r->headers = pst_array_one_more(r->headers, r->n_headers, sizeof *r->headers);
    out_header *h = &r->headers[r->n_headers++];
    h->name = pst_strdup(name);
    give_value(h, value);
}

void pst_http_set_header(pst_http_req *r, const char *name, const char *value)
{
    out_header *h = out_header_of(r, name);
    if (!h) {
        pst_http_add_header(r, name, value);
        return;
    }
    free(h->value);
    give_value(h, value);
}

/* RFC 6797: a browser shall not ask for this name in the clear any more. The name is one, whatever the port: not said of localhost, whose other ports are other programs'. */
static bool is_named_over_tls(const pst_http_req *r)
{
    char name[256];
    return r->conn->tls && !r->server->loopback && r->head.host && http_host_parse(r->head.host, name) &&
           strcasecmp(name, "localhost") != 0;
}

void http_reply_head(pst_http_req *r, struct evbuffer *out, int status, const char *type, int64_t length)
{
    char date[40];
    time_t now = (time_t)(pst_now_us() / 1000000);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, pst_http_status_text(status), date);
    if (type && *type)
        evbuffer_add_printf(out, "Content-Type: %s\r\n", type);
    if (length >= 0 && status != 204 && status != 304)
        evbuffer_add_printf(out, "Content-Length: %lld\r\n", (long long)length);
    else if (length == -2)
        evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n");
    if (r->conn && is_named_over_tls(r))
        evbuffer_add_printf(out, "Strict-Transport-Security: max-age=31536000\r\n");
    if (!out_header_of(r, "X-Content-Type-Options"))
        evbuffer_add_printf(out, "X-Content-Type-Options: nosniff\r\n");
    if (!out_header_of(r, "Cache-Control"))
        evbuffer_add_printf(out, "Cache-Control: no-store\r\n");
    for (size_t i = 0; i < r->n_headers; i++)
        evbuffer_add_printf(out, "%s: %s\r\n", r->headers[i].name, r->headers[i].value);
    if (!r->keep)
        evbuffer_add_printf(out, "Connection: close\r\n");
    else if (r->head.minor == 0)
        evbuffer_add_printf(out, "Connection: keep-alive\r\n");
    evbuffer_add(out, "\r\n", 2);
}

void http_told(const pst_http_req *r, int status)
{
    if (r->server && r->server->replied)
        r->server->replied(r->server->replied_arg, r, status);
}

void pst_http_reply(pst_http_req *r, int status, const char *content_type, const void *body, size_t len)
{
    conn *c = r->conn;
    http_told(r, status);
    if (c) {
        PST_ASSERT(c->req == r && !c->stream); /* one answer for each request, and to the one at hand */
        if (r->server->draining)
            r->keep = false;
        struct evbuffer *out = bufferevent_get_output(c->bev);
        http_reply_head(r, out, status, content_type, (int64_t)len);
        if (len && !r->head_only && status != 204 && status != 304)
            evbuffer_add(out, body, len);
        c->req = NULL;
        http_conn_replied(c, r->keep);
    }
    http_req_free(r);
}

void pst_http_reply_text(pst_http_req *r, int status, const char *fmt, ...)
{
    pst_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    pst_buf_vprintf(&b, fmt, ap);
    va_end(ap);
    pst_http_reply(r, status, "text/plain; charset=utf-8", b.data, b.len);
    pst_buf_done(&b);
}

static void reply_json(pst_http_req *r, int status, const char *type, json_t *take)
{
    pst_buf b = {0};
    if (take)
        pst_json_add(&b, take);
    json_decref(take);
    pst_http_reply(r, status, type, b.data, b.len);
    pst_buf_done(&b);
}

void pst_http_reply_metrics(pst_http_req *r, pst_metrics *set)
{
    pst_buf b = {0};
    const char *accept = pst_http_header(r, "Accept");
    bool open = accept && strstr(accept, "application/openmetrics-text");
    (open ? pst_metrics_open_text : pst_metrics_text)(set, &b);
    pst_http_reply(r, 200, open ? "application/openmetrics-text; version=1.0.0; charset=utf-8" : "text/plain; version=0.0.4; charset=utf-8",
                   b.data, b.len);
    pst_buf_done(&b);
}

void pst_http_reply_json(pst_http_req *r, int status, json_t *take)
{
    reply_json(r, status, "application/json", take);
}

void pst_http_problem(pst_http_req *r, int status, const char *code, const char *title, const char *detail)
{
    const pst_http *s = r->server;
    if (s && s->problem && s->problem(s->problem_arg, r, status, detail))
        return;
    json_t *j = json_object();
    json_object_set_new(j, "type", json_string("about:blank"));
    json_object_set_new(j, "title", json_string(title ? title : pst_http_status_text(status)));
    json_object_set_new(j, "status", json_integer(status));
    if (code)
        json_object_set_new(j, "code", json_string(code));
    if (detail) {
        json_t *text = json_string(detail); /* NULL when it is not UTF-8, as texts made of user input may be */
        json_object_set_new(j, "detail", text ? text : json_string("(text that is not UTF-8)"));
    }
    reply_json(r, status, "application/problem+json", j);
}

void pst_http_problem_err(pst_http_req *r, const pst_err *err)
{
    static const struct {
        int code, status;
        const char *word;
    } rows[] = {{PST_ENOTFOUND, 404, "not-found"},
                {PST_EEXIST, 409, "exists"},
                {PST_ESTATE, 409, "wrong-state"},
                {PST_EINCOMPAT, 409, "incompatible-schema"},
                {PST_ELIMIT, 413, "limit"},
                {PST_EAUTH, 403, "refused"},
                {PST_EINVAL, 400, "invalid"},
                {PST_EPARSE, 400, "malformed"},
                {PST_EUNREACH, 503, "unreachable"},
                {PST_ETIMEDOUT, 504, "timed-out"},
                {PST_ESTOPPED, 503, "stopping"},
                {PST_EAGAIN, 503, "busy"},
                {PST_EUNSUPPORTED, 501, "unsupported"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].code == err->code) {
            if (rows[i].status == 503)
                pst_http_add_header(r, "Retry-After", "2");
            pst_http_problem(r, rows[i].status, rows[i].word, NULL, err->text);
            return;
        }
    pst_http_problem(r, 500, "internal", NULL, err->text);
}
