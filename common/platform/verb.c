/* verb.c - see verb.h. */
#include "common/platform/verb.h"

#include "common/base/json.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pst_verb_begin(pst_verb_run *v, const pst_usage *usage, int argc, char **argv, void *opts, int args_min, int args_max)
{
    memset(v, 0, sizeof *v);
    v->usage = usage;
    int rc = pst_opt_parse(usage, argc, argv, opts, &v->settings, &v->args, &v->n_args, &v->err);
    if (rc == 1)
        return 0;
    if (!rc && (v->n_args < args_min || (args_max >= 0 && v->n_args > args_max)))
        rc = pst_err_set(&v->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: usage: penstock %s %s",
                         v->n_args < args_min ? "something is missing" : "too many arguments", usage->verb, usage->args);
    if (!rc) {
        char id[64];
        snprintf(id, sizeof id, "penstock-%s", usage->verb);
        for (char *p = id; *p; p++)
            if (*p == ' ')
                *p = '-';
        rc = pst_client_open(&v->settings, id, &v->client, &v->err);
    }
    return rc < 0 ? pst_verb_end(v, rc) : -1;
}

int pst_verb_end(pst_verb_run *v, int rc)
{
    int status = 0;
    if (rc < 0) {
        if (!v->err.code)
            pst_err_set(&v->err, rc, PST_CLASS_FATAL, "", 0, "failed (%s)", pst_code_name(rc));
        if (v->err.code != PST_ESTOPPED)
            pst_say_err(v->usage->verb, &v->err);
        status = pst_err_exit(&v->err);
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
