/* caller.c - roles as bits, so that a user may have several and a route may name several, and the few rules that handlers ask. They stand in one
 * place because each of them, asked differently in one handler of many, would be a hole. */
#include "producers/gateway/caller.h"

#include "schemas/avro.h"
#include "schemas/job_state.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word;
    unsigned bit;
} roles[] = {{"viewer", GW_ROLE_VIEWER}, {"user", GW_ROLE_USER}, {"operator", GW_ROLE_OPERATOR}};
enum { N_ROLES = sizeof roles / sizeof *roles };

void gw_caller_sign(const pst_http_req *req, pst_job_request *r)
{
    const char *name = gw_caller_name(req);
    pst_str_map_set(&r->options, &r->n_options, PST_REQUEST_ROLE, NULL); /* a client's word for it is none, also under the one token */
    if (!name)
        return;
    free(r->user);
    r->user = pst_strdup(name);
    if (gw_caller_is_operator(req))
        pst_str_map_set(&r->options, &r->n_options, PST_REQUEST_ROLE, "operator");
}

bool gw_name_is_valid(const char *name, size_t len)
{
    if (!len || len > GW_NAME_MAX || !isalnum((unsigned char)*name))
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] > 126 || (!isalnum((unsigned char)name[i]) && !strchr("._@+-", name[i])) || !name[i])
            return false;
    return true;
}

unsigned gw_role_parse(const char *word, size_t len)
{
    for (size_t i = 0; i < N_ROLES; i++)
        if (strlen(roles[i].word) == len && !memcmp(roles[i].word, word, len))
            return roles[i].bit;
    return 0;
}

char *gw_roles_text(unsigned bits)
{
    pst_buf b = {0};
    for (size_t i = 0; i < N_ROLES; i++)
        if (bits & roles[i].bit)
            pst_buf_printf(&b, "%s%s", b.len ? ", " : "", roles[i].word);
    return b.len ? pst_buf_steal(&b) : pst_strdup("");
}

static void caller_free(void *arg)
{
    gw_caller *c = arg;
    free(c->request_id);
    free(c->training_id);
    free(c);
}

void gw_caller_set(pst_http_req *req, const gw_caller *caller)
{
    gw_caller *c = pst_alloc(sizeof *c);
    *c = *caller;
    c->request_id = c->training_id = NULL;
    pst_http_set_data(req, c, caller_free);
}

void gw_caller_note(pst_http_req *req, const char *request_id, const char *training_id)
{
    gw_caller *c = pst_http_data(req);
    if (!c)
        return;
    free(c->request_id);
    free(c->training_id);
    c->request_id = pst_strdup(request_id);
    c->training_id = pst_strdup(training_id);
}

const gw_caller *gw_caller_of(const pst_http_req *req)
{
    static const gw_caller stranger;
    const gw_caller *c = pst_http_data(req);
    return c ? c : &stranger;
}

const char *gw_caller_name(const pst_http_req *req)
{
    const gw_caller *c = gw_caller_of(req);
    return *c->name ? c->name : NULL;
}

bool gw_caller_is_operator(const pst_http_req *req)
{
    const gw_caller *c = gw_caller_of(req);
    return *c->name && (c->roles & GW_ROLE_OPERATOR);
}

bool gw_caller_sees_all(const pst_http_req *req)
{
    return gw_caller_of(req)->roles & (GW_ROLE_VIEWER | GW_ROLE_OPERATOR);
}

static bool owns(const gw_caller *c, const char *owner)
{
    return (c->roles & GW_ROLE_USER) && *c->name && owner && !strcmp(c->name, owner);
}

bool gw_caller_sees(const pst_http_req *req, const char *owner)
{
    const gw_caller *c = gw_caller_of(req);
    return gw_caller_sees_all(req) || c->granted || owns(c, owner);
}

bool gw_caller_touches(const pst_http_req *req, const char *owner)
{
    const gw_caller *c = gw_caller_of(req);
    return (c->roles & GW_ROLE_OPERATOR) || owns(c, owner);
}
