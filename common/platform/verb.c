/* verb.c - what every verb does before and after its work: arguments counted, help, the client opened, an error printed with where the
 * address it speaks of came from, the exit status made of its class. */
#include "common/platform/verb.h"

#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/stop.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is missing, where one thing alone is wanted: "ID". */
static void count_args(pst_verb_run *v, int args_min, int args_max)
{
    const pst_usage *u = v->usage;
    const char *args = u->args ? u->args : "", *gap = *args ? " " : "";
    int word = (int)strcspn(args, " [|");
    if (v->n_args < args_min && v->n_args == 0 && word > 0)
        pst_err_set(&v->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%.*s is missing; usage: penstock %s%s%s", word, args, u->verb, gap,
                    args);
    else if (v->n_args < args_min)
        pst_err_set(&v->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "something is missing after \"%.80s\"; usage: penstock %s%s%s",
                    v->args[v->n_args - 1], u->verb, gap, args);
    else if (v->n_args && !*v->args[0])
        pst_err_set(&v->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%.*s is empty; usage: penstock %s%s%s",
                    (int)strcspn(args + (*args == '['), " [|]"), args + (*args == '['), u->verb, gap, args);
    else if (args_max >= 0 && v->n_args > args_max)
        pst_err_set(&v->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "\"%.80s\" is one argument too many; usage: penstock %s%s%s",
                    v->args[args_max], u->verb, gap, args);
}

int pst_verb_parse(pst_verb_run *v, const pst_usage *usage, int argc, char **argv, void *opts, int args_min, int args_max)
{
    memset(v, 0, sizeof *v);
    v->usage = usage;
    int rc = pst_opt_parse(usage, argc, argv, opts, &v->settings, &v->args, &v->n_args, &v->err);
    if (rc == 1)
        return 0;
    if (!rc) {
        count_args(v, args_min, args_max);
        rc = v->err.code;
    }
    return rc < 0 ? pst_verb_end(v, rc) : -1;
}

int pst_verb_begin(pst_verb_run *v, const pst_usage *usage, int argc, char **argv, void *opts, int args_min, int args_max)
{
    int status = pst_verb_parse(v, usage, argc, argv, opts, args_min, args_max);
    if (status >= 0)
        return status;
    char id[64];
    snprintf(id, sizeof id, "penstock-%s", usage->verb);
    for (char *p = id; *p; p++)
        if (*p == ' ')
            *p = '-';
    int rc = pst_client_open(&v->settings, id, &v->client, &v->err);
    return rc < 0 ? pst_verb_end(v, rc) : -1;
}

static void say_address(const pst_settings *s, const pst_err *err)
{
    bool registry = !strcmp(err->origin, "registry");
    if (registry && err->native >= 400) /* it is there, and answers that it cannot now */
        return;
    const pst_setting *at = registry ? &s->registry : &s->bootstrap;
    if (err->code != PST_EUNREACH || (!registry && strcmp(err->origin, "kafka") != 0) || !at->value)
        return;
    fprintf(stderr, "  %s is from: %s; %s another address, %s, `penstock doctor` looks closer\n", at->value,
            at->origin ? at->origin : "default", registry ? "--registry URL gives" : "-b HOST:PORT gives",
            registry ? "`penstock registry` starts one here" : "`penstock up --kafka` starts a broker here");
}

int pst_verb_say(const char *verb, const pst_settings *s, const pst_err *err)
{
    if (err->code == PST_EUNREACH && pst_stop_signal() == SIGINT) /* the wait was ended, not lost */
        return 130;
    if (err->code != PST_ESTOPPED) {
        pst_say_err(verb, err);
        say_address(s, err);
    }
    return pst_err_exit(err);
}

int pst_verb_end(pst_verb_run *v, int rc)
{
    int status = 0;
    if (rc < 0) {
        if (!v->err.code)
            pst_err_set(&v->err, rc, PST_CLASS_FATAL, "", 0, "failed (%s)", pst_code_name(rc));
        status = pst_verb_say(v->usage->verb, &v->settings, &v->err);
    }
    pst_client_close(v->client);
    pst_settings_done(&v->settings);
    free(v->args);
    return status;
}

void pst_print_event(const pst_type *type, const void *event)
{
    json_t *j = pst_event_to_json(type, event);
    pst_json_print(stdout, j);
    json_decref(j);
}
