/* http_guard.c - requests of foreign pages, re-bound names and form bodies are refused. Each rule says what is let in and refuses the rest: a list of bad names would always lack one. */
#include "common/loop/http_guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* inet_pton takes four decimal parts and nothing else: no 0x7f.1, no 2130706433, no leading zeros. */
static bool loopback_literal(const char *name, bool bracketed)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (bracketed)
        return inet_pton(AF_INET6, name, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
    return inet_pton(AF_INET, name, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

bool http_guard_host(const char *host, const char *const *names, const char *own)
{
    char name[256];
    if (!http_host_parse(host, name))
        return false;
    bool bracketed = host[0] == '[';
    if (bracketed && !strchr(name, ':')) /* brackets are for IPv6 literals: [192.0.2.7] and [box.example] name nothing */
        return false;
    for (const char *const *n = names; n && *n; n++)
        if (!strcasecmp(*n, name))
            return true;
    return (!bracketed && !strcmp(name, "localhost")) || loopback_literal(name, bracketed) || (own && !strcmp(name, own));
}

static bool is_safe(const char *method)
{
    return !strcmp(method, "GET") || !strcmp(method, "HEAD") || !strcmp(method, "OPTIONS");
}

/* Fields that decide here may come once only: which of two a proxy before us has looked at cannot be known. */
static bool single(const http_head *h, const char *name, const char **ret_value)
{
    *ret_value = NULL;
    for (size_t i = 0; i < h->n_fields; i++)
        if (!strcasecmp(h->fields[i].name, name)) {
            if (*ret_value)
                return false;
            *ret_value = h->fields[i].value;
        }
    return true;
}

/* https: a proxy with TLS before us, whose name was given as a Host. */
static bool same_origin(const char *origin, const char *host)
{
    const char *rest = !strncasecmp(origin, "http://", 7) ? origin + 7 : !strncasecmp(origin, "https://", 8) ? origin + 8 : NULL;
    if (!rest || !host)
        return false;
    if (!strcasecmp(rest, host))
        return true;
    size_t n = strlen(rest); /* an origin leaves its scheme's own port out */
    const char *port = origin[4] == ':' ? ":80" : ":443";
    return !strncasecmp(rest, host, n) && !strcmp(host + n, port);
}

bool http_guard_origin(const http_head *h)
{
    const char *origin, *site;
    if (is_safe(h->method))
        return true;
    if (!single(h, "Origin", &origin) || !single(h, "Sec-Fetch-Site", &site))
        return false;
    return (!origin || same_origin(origin, h->host)) && (!site || !strcmp(site, "same-origin") || !strcmp(site, "none"));
}

bool http_guard_type(const http_head *h, const char *const *types)
{
    const char *type;
    if (is_safe(h->method))
        return true;
    if (!single(h, "Content-Type", &type))
        return false;
    if (!type)
        return !h->chunked && !h->length;
    size_t n = strcspn(type, "; \t");
    for (; *types; types++)
        if (strlen(*types) == n && !strncasecmp(*types, type, n))
            return true;
    return false;
}
