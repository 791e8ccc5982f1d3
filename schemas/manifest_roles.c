/* manifest_roles.c - which processes a job has, and when it is tried again. `penstock.roles` and `learners: N` end in one list of roles, so that
 * nobody above has to know in which of the two ways a manifest said it. What a role leaves out is filled in here, once: a reader of one role
 * never looks at the job again. */
#include "schemas/manifest_read.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/fs.h"
#include "schemas/frameworks.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { ROLE_NAME_BYTES = 20, ROLES_MAX = 16 }; /* a process's name, <role>-<i>, is a folder, a host name and a column */

static const char *const known_roles[] = {"chief", "worker", "ps", "evaluator"};
enum { KNOWN_ROLES = sizeof known_roles / sizeof *known_roles };

bool pst_role_is_ranked(const char *role)
{
    return strcmp(role, "ps") != 0 && strcmp(role, "evaluator") != 0;
}

/* A role's own name may have a `-` in it: what stands before the last one is the role. */
bool pst_process_is_of(const char *process, const char *role)
{
    const char *last = strrchr(process, '-');
    size_t n = strlen(role);
    return last && (size_t)(last - process) == n && !memcmp(process, role, n);
}

bool pst_process_is_ranked(const char *process)
{
    return !pst_process_is_of(process, "ps") && !pst_process_is_of(process, "evaluator");
}

/* Ranks go chief, worker, others by name; behind them those without a rank. */
static int place_of(const char *role)
{
    static const char *const ends[] = {"chief", "worker", NULL, "ps", "evaluator"};
    for (int i = 0; i < 5; i++)
        if (ends[i] && !strcmp(ends[i], role))
            return i;
    return 2;
}

static int by_place(const void *a, const void *b)
{
    const pst_role *x = a, *y = b;
    int d = place_of(x->name) - place_of(y->name);
    return d ? d : strcmp(x->name, y->name);
}

static bool name_is_good(const char *name)
{
    size_t n = strlen(name);
    bool good = n >= 1 && n <= ROLE_NAME_BYTES && islower((unsigned char)*name) && name[n - 1] != '-';
    for (const char *s = name; good && *s; s++)
        good = islower((unsigned char)*s) || isdigit((unsigned char)*s) || *s == '-';
    return good;
}

/* ---- the list -------------------------------------------------------------------------------------------------------------------- */

/* A role with all that it takes from the job. */
static pst_role *add_role(pst_manifest *m, const char *name, int count)
{
    m->roles = pst_array_one_more(m->roles, m->n_roles, sizeof *m->roles);
    pst_role *role = &m->roles[m->n_roles++];
    *role = (pst_role){.name = pst_strdup(name),
                       .count = count,
                       .min = count,
                       .command = m->command ? pst_strdup(m->command) : NULL,
                       .cpus = m->cpus,
                       .memory_bytes = m->memory_bytes,
                       .gpus = strcmp(name, "ps") ? m->gpus : 0,
                       .env = m->env ? json_deep_copy(m->env) : NULL};
    return role;
}

void mf_roles_done(pst_manifest *m)
{
    for (size_t i = 0; i < m->n_roles; i++) {
        free(m->roles[i].name);
        free(m->roles[i].command);
        json_decref(m->roles[i].env);
    }
    free(m->roles);
    m->roles = NULL;
    m->n_roles = 0;
}

static void read_command(mf_reader *r, const mf_place *p, const pst_manifest *m, pst_role *role)
{
    if (!mf_value(p, "command"))
        return;
    if (m->native)
        mf_wrong(r, p, "command", "is not for framework.name %s, whose processes run the platform's own program; leave it out",
                 m->framework);
    size_t before = r->errors->n;
    char *command = mf_text(r, p, "command");
    if (!command)
        return;
    if (command[strspn(command, " \t\r\n")] == '\0' && r->errors->n == before)
        mf_wrong(r, p, "command", "is empty: the shell command of this role, or leave it out for the job's");
    free(role->command);
    role->command = command;
}

static void read_sizes(mf_reader *r, const mf_place *p, pst_role *role)
{
    role->count = (int)mf_int(r, p, "count");
    role->min = mf_value(p, "min") ? (int)mf_int(r, p, "min") : role->count;
    if (role->min > role->count)
        mf_wrong(r, p, "min", "is %d, more than count, %d", role->min, role->count);
    else if (role->min != role->count)
        mf_warn(r, p, "min", "is kept, but a gang starts with all %d processes in this version", role->count);
    if (!strcmp(role->name, "chief") && role->count > 1)
        mf_wrong(r, p, "count", "must be 1: a job has one chief; the others are workers");
    if (mf_value(p, "cpus"))
        role->cpus = mf_number(r, p, "cpus", "a number of CPUs", " (0.5 is half a CPU)");
    if (mf_value(p, "memory"))
        role->memory_bytes = mf_memory(r, p, "memory");
    if (mf_value(p, "gpus"))
        role->gpus = (int)mf_int(r, p, "gpus");
}

static void read_role_env(mf_reader *r, const mf_place *p, const pst_manifest *m, pst_role *role)
{
    char path[160];
    mf_field(p, "env", path);
    json_t *own = mf_env(r, p, path, m);
    if (own && role->env)
        json_object_update(role->env, own);
    else if (own)
        role->env = json_incref(own);
    json_decref(own);
}

static void read_role(mf_reader *r, const mf_place *roles, const char *name, const json_t *v, pst_manifest *m)
{
    char path[160], what[64];
    const char *near = pst_nearest(name, known_roles, KNOWN_ROLES);
    if (near && !strcmp(near, name))
        near = NULL;
    if (!name_is_good(name)) {
        mf_wrong(r, roles, name, "is no name for a role: small letters, digits and '-', beginning with a letter, %d at most",
                 ROLE_NAME_BYTES);
        return;
    }
    if (!strcmp(name, "ps") && !json_is_object(v)) {
        int count = (int)mf_int(r, roles, name);
        if (count)
            add_role(m, name, count)->line = pst_yaml_key_line(r->y, roles->obj, name);
        return;
    }
    if (!json_is_object(v) && !json_is_null(v)) {
        mf_wrong(r, roles, name, "must be a mapping such as {count: 2}, found %s%s%s%s", mf_found(v, what), near ? "; did you mean \"" : "",
                 near ? near : "", near ? "\"?" : "");
        return;
    }
    if (near)
        mf_warn(r, roles, name, "is a role of a name of your own; did you mean \"%s\"?", near);
    pst_role *role = add_role(m, name, 1);
    role->line = pst_yaml_key_line(r->y, roles->obj, name);
    mf_field(roles, name, path);
    mf_place p = {v, path};
    if (!json_is_object(v)) /* `chief:` alone is one of it */
        return;
    mf_check_keys(r, &p, true);
    read_sizes(r, &p, role);
    read_command(r, &p, m, role);
    read_role_env(r, &p, m, role);
}

/* A job whose roles all have commands needs none of its own. */
static void check_commands(mf_reader *r, const mf_place *roles, const pst_manifest *m)
{
    if (!m->runs || !m->runs->needs_command)
        return;
    for (size_t i = 0; i < m->n_roles; i++) {
        const char *t = m->roles[i].command;
        if (t && t[strspn(t, " \t\r\n")])
            continue;
        if (m->roles[i].line)
            mf_wrong(r, roles, m->roles[i].name, "has no command, and framework.command is missing: the shell command that runs in it");
        else
            pst_complain(r->errors, "framework.command", 0, "is missing: the shell command that trains");
    }
}

/* The built-in learner's processes are ranks and parameter servers, and nothing else. */
static void check_native(mf_reader *r, const mf_place *roles, const pst_manifest *m)
{
    for (size_t i = 0; m->native && i < m->n_roles; i++)
        if (!pst_role_is_ranked(m->roles[i].name) && strcmp(m->roles[i].name, "ps") != 0)
            mf_wrong(r, roles, m->roles[i].name, "is no role of framework.name %s, whose learners evaluate by themselves; leave it out",
                     m->framework);
}

static void check_total(mf_reader *r, const mf_place *own, const pst_manifest *m)
{
    int n = pst_manifest_processes(m);
    int most = m->roles_given ? PST_JOB_PROCESSES_MAX : 2 * PST_JOB_PROCESSES_MAX; /* as many learners as parameter servers, as ever */
    if (n > most)
        mf_wrong(r, own, "roles", "ask for %d processes with the learners, at most %d are allowed", n, most);
}

static void read_all(mf_reader *r, const mf_place *own, pst_manifest *m)
{
    const char *name;
    json_t *v;
    size_t before = r->errors->n;
    mf_place roles = {mf_mapping(r, own, "roles"), "penstock.roles"};
    if (!roles.obj)
        return;
    if (json_object_size(roles.obj) > ROLES_MAX) {
        mf_wrong(r, own, "roles", "has %zu roles, at most %d are allowed", json_object_size(roles.obj), ROLES_MAX);
        return;
    }
    json_object_foreach((json_t *)roles.obj, name, v)
    {
        read_role(r, &roles, name, v, m);
    }
    for (size_t i = 0; i < m->n_roles; i++)
        m->roles_given |= pst_role_is_ranked(m->roles[i].name);
    if (!m->roles_given)
        add_role(m, "worker", m->learners);
    if (r->errors->n == before)
        check_commands(r, &roles, m);
    check_native(r, &roles, m);
    check_total(r, own, m);
}

void mf_roles(mf_reader *r, const mf_place *own, pst_manifest *m)
{
    PST_ASSERT(!m->roles);
    if (own->obj)
        read_all(r, own, m);
    if (!m->n_roles)
        add_role(m, "worker", m->learners);
    qsort(m->roles, m->n_roles, sizeof *m->roles, by_place);
    m->learners = 0;
    for (size_t i = 0; i < m->n_roles; i++)
        m->learners += pst_role_is_ranked(m->roles[i].name) ? m->roles[i].count : 0;
}

/* ---- processes ------------------------------------------------------------------------------------------------------------------- */

int pst_manifest_processes(const pst_manifest *m)
{
    int n = 0;
    for (size_t i = 0; i < m->n_roles; i++)
        n += m->roles[i].count;
    return n;
}

const char *pst_manifest_prefix(const pst_manifest *m, const pst_role *role)
{
    return !m->roles_given && !strcmp(role->name, "worker") ? "learner" : role->name;
}

const pst_role *pst_manifest_process(const pst_manifest *m, int i, char ret_name[32])
{
    size_t k = 0;
    PST_ASSERT(i >= 0 && i < pst_manifest_processes(m));
    for (; i >= m->roles[k].count; k++)
        i -= m->roles[k].count;
    snprintf(ret_name, 32, "%.*s-%d", ROLE_NAME_BYTES, pst_manifest_prefix(m, &m->roles[k]), i + 1);
    return &m->roles[k];
}

const pst_role *pst_manifest_role(const pst_manifest *m, const char *process, int *ret_index)
{
    const char *dash = strrchr(process, '-');
    char *end = NULL;
    long i = dash && isdigit((unsigned char)dash[1]) && dash[1] != '0' ? strtol(dash + 1, &end, 10) : 0;
    for (size_t k = 0; end && !*end && k < m->n_roles; k++) {
        const char *prefix = pst_manifest_prefix(m, &m->roles[k]);
        if (strlen(prefix) == (size_t)(dash - process) && !strncmp(prefix, process, strlen(prefix)) && i >= 1 && i <= m->roles[k].count) {
            *ret_index = (int)i - 1;
            return &m->roles[k];
        }
    }
    return NULL;
}

/* ---- retries --------------------------------------------------------------------------------------------------------------------- */

/* "exit:3" with prefix "exit:" → 3; -1 = it is something else. */
static int number_after(const char *t, const char *prefix, int max)
{
    size_t n = strlen(prefix);
    char *end;
    if (strncmp(t, prefix, n) != 0 || !isdigit((unsigned char)t[n]))
        return -1;
    long v = strtol(t + n, &end, 10);
    return *end || v < 1 || v > max ? -1 : (int)v;
}

static bool parse_rule(const char *t, pst_retry_rule *ret)
{
    int status = number_after(t, "exit:", 255), sig = number_after(t, "signal:", 64);
    *ret = (pst_retry_rule){status > 0 ? PST_RETRY_EXIT : PST_RETRY_SIGNAL, status > 0 ? status : sig};
    if (!strcmp(t, "lost") || !strcmp(t, "oom"))
        *ret = (pst_retry_rule){*t == 'l' ? PST_RETRY_LOST : PST_RETRY_OOM, 0};
    return ret->number >= 0;
}

static void read_rules(mf_reader *r, const mf_place *p, pst_manifest *m)
{
    char what[64], field[64];
    const json_t *v = mf_value(p, "on");
    if (!v)
        return;
    size_t n = json_array_size(v);
    if (!json_is_array(v) || !n || n > mf_most(p, "on")) {
        mf_wrong(r, p, "on", "must be a list of 1 to %zu of exit:N, signal:N, lost and oom, found %s", mf_most(p, "on"), mf_found(v, what));
        return;
    }
    m->retry_on = pst_alloc(n * sizeof *m->retry_on);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(v, i);
        const char *t = json_string_value(one);
        if (t && parse_rule(t, &m->retry_on[m->n_retry_on])) {
            m->n_retry_on++;
            continue;
        }
        snprintf(field, sizeof field, "penstock.retries.on[%zu]", i);
        pst_complain(r->errors, field, pst_yaml_key_line(r->y, p->obj, "on"),
                     "must be exit:N (N from 1 to 255), signal:N (1 to 64), lost or oom, found %s", mf_found(one, what));
    }
}

void mf_retries(mf_reader *r, const mf_place *own, pst_manifest *m)
{
    const json_t *v = mf_value(own, "retries");
    if (!json_is_object(v)) {
        m->retries = (int)mf_int(r, own, "retries");
        return;
    }
    mf_place p = {v, "penstock.retries"};
    mf_check_keys(r, &p, true);
    if (!mf_value(&p, "max"))
        mf_wrong(r, &p, "max", "is missing: how many new generations there may be");
    m->retries = (int)mf_int(r, &p, "max");
    read_rules(r, &p, m);
}
