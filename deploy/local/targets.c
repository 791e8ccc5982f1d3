/* targets.c - a scrape configuration that is written once cannot know ports that are chosen at a start. Prometheus looks at a file for that, and this is it: an
 * entry for each service that listens, read from its arguments, also of one that is down at the moment, so that its absence is noticed. */
#include "deploy/local/targets.h"

#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *path_of(const local_services *s)
{
    return pst_fs_join(s->settings->state_dir.value, "metrics-targets.json");
}

/* "9101" → "127.0.0.1:9101"; NULL = it serves nothing. free() */
static char *address_of(const local_service *v)
{
    static const char *const options[] = {"--port", "--metrics-listen", "--listen"};
    for (size_t i = 1; v->argv[i] && v->argv[i + 1]; i++)
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            if (!strcmp(v->argv[i], options[k]))
                return pst_sprintf("%s%s", strchr(v->argv[i + 1], ':') ? "" : "127.0.0.1:", v->argv[i + 1]);
    /* The one sink with a page, at its own default. */
    return strcmp(v->name, "sink:prometheus") ? NULL : pst_strdup("127.0.0.1:9110");
}

static bool has_tls(const local_service *v)
{
    for (size_t i = 1; v->argv[i]; i++)
        if (!strcmp(v->argv[i], "--tls-cert"))
            return true;
    return false;
}

void local_targets_write(const local_services *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n; i++) {
        char *address = address_of(s->at[i]);
        if (address)
            json_array_append_new(list, json_pack("{s:[s], s:{s:s, s:s*}}", "targets", address, "labels", "service", s->at[i]->name,
                                                  "__scheme__", has_tls(s->at[i]) ? "https" : NULL));
        free(address);
    }
    char *text = pst_json_text(list), *path = path_of(s);
    pst_err err = {0};
    if (pst_fs_replace(path, text, strlen(text), 0600, &err) < 0)
        pst_log_err("up", &err);
    free(path);
    free(text);
    json_decref(list);
}

void local_targets_remove(const local_services *s)
{
    char *path = path_of(s);
    unlink(path);
    free(path);
}
