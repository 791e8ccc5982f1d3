/* acls.c - prints the grants of schemas/access.h, and what the scorer needs for a pipeline: it reads the inputs, writes scores, dead letters and
 * shadow scores, makes those topics where they are missing (a team that makes topics itself leaves Create out: the scorer then says so and goes
 * on), and joins the pipeline's group. Users may put its dead letters back on the inputs, viewers look at them.
 *
 * One line a grant, so that the output can be read, diffed and run: `penstock topics acls --commands | sh` with kafka-acls.sh on the path. */
#include "deploy/local/acls.h"
#include "common/base/json.h"
#include "inference/pipeline/pipeline.h"
#include "schemas/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct printer {
    const local_acls_opts *o;
    const char *component;
    char *principal;
} printer;

/* Names may hold what a shell reads otherwise; a single quote cannot stand in a topic's name, but it may in a group's. */
static void print_quoted(const char *s)
{
    putchar('\'');
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*s);
    }
    putchar('\'');
}

static void print_grant(void *arg, const pst_grant *g)
{
    const printer *p = arg;
    if (p->o->json) {
        json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "component", p->component, "principal", p->principal, "resource",
                              g->resource, "name", g->name, "pattern", g->prefixed ? "prefixed" : "literal", "operation", g->operation);
        pst_json_print(stdout, o);
        json_decref(o);
    } else if (p->o->commands) {
        fputs("kafka-acls.sh --bootstrap-server \"$BOOTSTRAP\" --command-config \"$ADMIN\" --add --allow-principal ", stdout);
        print_quoted(p->principal);
        printf(" --operation %s --%s ", g->operation, g->resource);
        print_quoted(g->name);
        puts(g->prefixed ? " --resource-pattern-type prefixed" : "");
    } else {
        printf("%-10s %-16s %-36s %-9s %s\n", p->component, g->resource, *g->name ? g->name : "(all)", g->prefixed ? "prefixed" : "literal",
               g->operation);
    }
}

static void give(printer *p, const char *resource, const char *name, const char *operation)
{
    print_grant(p, &(pst_grant){.resource = resource, .name = name, .operation = operation});
}

static void give_output(printer *p, const char *topic)
{
    static const char *const operations[] = {"Write", "Create", "DescribeConfigs"};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        give(p, "topic", topic, operations[i]);
}

static int give_pipeline(printer *p, const char *file, pst_err *err)
{
    pst_pipeline *line = NULL;
    int rc = pst_pipeline_load(file, &line, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < line->n_topics; i++) {
        give(p, "topic", line->topics[i], "Read");
        give(p, "topic", line->topics[i], "DescribeConfigs"); /* how large a record may be: its dead letter must hold it */
        if (!line->tolerance_none && !line->dlq_topic) {
            char *dlq = pst_sprintf("%s.dlq", line->topics[i]);
            give_output(p, dlq);
            free(dlq);
        }
    }
    if (!line->tolerance_none && line->dlq_topic)
        give_output(p, line->dlq_topic);
    if (line->output_topic)
        give_output(p, line->output_topic);
    if (line->shadow_topic)
        give_output(p, line->shadow_topic);
    if (line->state.there) {
        give_output(p, line->state.topic);
        give(p, "topic", line->state.topic, "Read");
    }
    char *group = line->group ? pst_strdup(line->group) : pst_sprintf("%sscore.%s", p->o->prefix, line->name);
    give(p, "group", group, "Read");
    free(group);
    pst_pipeline_free(line);
    return 0;
}

/* Who looks at a pipeline's dead letters, and who puts them back: what was put back is noted in a ledger beside them, in one transaction. */
static void give_letters(printer *p, pst_component c, const char *dead_letters)
{
    static const char *const notes[] = {"Write", "Create"};
    char *ledger = pst_sprintf("%s.replays", dead_letters);
    give(p, "topic", dead_letters, "Read");
    give(p, "topic", ledger, "Read");
    for (size_t i = 0; c == PST_COMPONENT_USER && i < sizeof notes / sizeof *notes; i++)
        give(p, "topic", ledger, notes[i]);
    if (c == PST_COMPONENT_USER)
        give(p, "transactional-id", ledger, "Write");
    free(ledger);
}

static int give_replay(printer *p, pst_component c, const char *file, pst_err *err)
{
    pst_pipeline *line = NULL;
    int rc = pst_pipeline_load(file, &line, err);
    for (size_t i = 0; !rc && !line->tolerance_none && i < line->n_topics; i++) {
        char *own = pst_sprintf("%s.dlq", line->topics[i]);
        if (!line->dlq_topic || !i)
            give_letters(p, c, line->dlq_topic ? line->dlq_topic : own);
        if (c == PST_COMPONENT_USER)
            give(p, "topic", line->topics[i], "Write");
        free(own);
    }
    pst_pipeline_free(line);
    return rc;
}

static int print_component(const local_acls_opts *o, pst_component c, pst_err *err)
{
    printer p = {.o = o, .component = pst_component_name(c)};
    const char *at = strstr(o->principal, "%s");
    p.principal = at ? pst_sprintf("%.*s%s%s", (int)(at - o->principal), o->principal, p.component, at + 2) : pst_strdup(o->principal);
    if (o->commands && !o->json)
        printf("# %s: %s\n", p.component, pst_component_doc(c));
    pst_access_each(c, o->prefix, print_grant, &p);
    int rc = 0;
    for (size_t i = 0; c == PST_COMPONENT_SCORER && i < o->n_files && !rc; i++)
        rc = give_pipeline(&p, o->files[i], err);
    for (size_t i = 0; (c == PST_COMPONENT_USER || c == PST_COMPONENT_VIEWER) && i < o->n_files && !rc; i++)
        rc = give_replay(&p, c, o->files[i], err);
    free(p.principal);
    return rc;
}

int local_acls_print(const local_acls_opts *o, pst_err *err)
{
    if (!o->component && !strstr(o->principal, "%s"))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "--principal %s would be one user for all components; write %%s where the component's name goes, or add --for "
                           "COMPONENT",
                           o->principal);
    bool found = false;
    if (!o->json && !o->commands)
        printf("%-10s %-16s %-36s %-9s %s\n", "COMPONENT", "RESOURCE", "NAME", "PATTERN", "OPERATION");
    for (int c = 0; c < PST_COMPONENT_COUNT; c++) {
        if (o->component && strcmp(o->component, pst_component_name((pst_component)c)))
            continue;
        found = true;
        int rc = print_component(o, (pst_component)c, err);
        if (rc < 0)
            return rc;
    }
    if (found)
        return 0;
    pst_buf names = {0};
    for (int c = 0; c < PST_COMPONENT_COUNT; c++)
        pst_buf_printf(&names, "%s%s", c ? ", " : "", pst_component_name((pst_component)c));
    int rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "there is no component %s; there are %s", o->component, names.data);
    pst_buf_done(&names);
    return rc;
}
