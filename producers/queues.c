/* queues.c - penstock queues list|show|apply|delete: the queues that jobs wait in, on the topic `queues`. The topic is compacted and its key is the name:
 * apply and delete are a record each. What a queue has in use is counted from the states of jobs when it is asked. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/settings.h"
#include "common/platform/queues.h"
#include "common/platform/verb.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST, SHOW, APPLY, DELETE, N_VERBS, FILE_BYTES_MAX = 1 << 20 };

static const pst_usage usages[N_VERBS] = {
    [LIST] = {"queues list", "", "List the queues with what they may have, have in use, and how many jobs wait.", NULL,
              "penstock queues list\npenstock queues list --json", NULL, 0, false},
    [SHOW] = {"queues show", "NAME", "Print a queue as a document that `queues apply` takes.", NULL, "penstock queues show nightly", NULL,
              0, false},
    [APPLY] = {"queues apply", "FILE", "Publish the queues of a file: new ones, or others in place of those of the same name.",
               "A queue is a YAML document, several of them are separated by lines `---`; - reads them from stdin:\n"
               "  name: nightly\n"
               "  weight: 3                                 # its share beside the other queues' weights [1]\n"
               "  quota: {cpus: 16, memory: 64GiB, gpus: 2} # at a time, on all nodes together; what is left out has no limit\n"
               "  max_running_per_user: 4                   # jobs [no limit]\n"
               "  preempts: false                           # may its jobs take the place of others?\n"
               "All of them are checked first; nothing is published where one is wrong. A smaller quota stops nothing that runs.",
               "penstock queues apply queues.yml\nprintf 'name: nightly\\nquota: {cpus: 16}\\n' | penstock queues apply -", NULL, 0, false},
    [DELETE] = {"queues delete", "NAME", "Remove a queue in which no job waits or runs.", NULL, "penstock queues delete nightly", NULL, 0,
                false},
};

static void limit_text(char ret[64], double used, bool limited, double limit, const char *unit)
{
    if (limited)
        snprintf(ret, 64, "%.4g of %.4g%s", used, limit, unit);
    else
        snprintf(ret, 64, "%.4g%s", used, unit);
}

static void list_row(const pst_queue_spec *q, const pst_queue_use *use)
{
    char cpus[64], memory[64], gpus[64], users[16] = "-";
    const double gib = 1 << 30;
    limit_text(cpus, use->cpus, q->quota.has_cpus, q->quota.cpus, "");
    limit_text(memory, (double)use->memory / gib, q->quota.has_memory, (double)q->quota.memory / gib, " GiB");
    limit_text(gpus, (double)use->gpus, q->quota.has_gpus, q->quota.gpus, "");
    if (q->has_max_running_per_user)
        snprintf(users, sizeof users, "%d", (int)q->max_running_per_user);
    printf("%-24s %7.6g %7d %7d  %-14s %-18s %-10s %8s  %s\n", q->name, q->weight, use->running, use->waiting, cpus, memory, gpus, users,
           q->preempts ? "yes" : "no");
}

static int list(pst_verb_run *v, const pst_queues *q)
{
    pst_queue_use *uses = NULL;
    int rc = pst_queues_in_use(v->client, q, NULL, &uses, &v->err);
    if (!rc && !v->settings.json)
        printf("%-24s %7s %7s %7s  %-14s %-18s %-10s %8s  %s\n", "NAME", "WEIGHT", "RUNNING", "WAITING", "CPUS", "MEMORY", "GPUS",
               "PER USER", "PREEMPTS");
    for (size_t i = 0; !rc && i < q->n; i++) {
        json_t *j = v->settings.json ? pst_queue_json(&q->at[i], &uses[i]) : NULL;
        if (j)
            pst_json_print(stdout, j);
        else
            list_row(&q->at[i], &uses[i]);
        json_decref(j);
    }
    free(uses);
    return rc;
}

static int show(pst_verb_run *v, const pst_queues *q)
{
    const pst_queue_spec *one = pst_queues_find(q, v->args[0]);
    if (!one) {
        char *text = pst_queues_unknown(q, v->args[0]);
        int rc = pst_err_set(&v->err, PST_ENOTFOUND, PST_CLASS_DATA, "queue", 0, "%s", text);
        free(text);
        return rc;
    }
    if (!v->settings.json) {
        char *yaml = pst_queue_spec_yaml(one);
        fputs(yaml, stdout);
        free(yaml);
        return 0;
    }
    pst_queue_use *uses = NULL;
    int rc = pst_queues_in_use(v->client, q, NULL, &uses, &v->err);
    if (!rc) {
        json_t *j = pst_queue_json(one, &uses[one - q->at]);
        pst_json_print(stdout, j);
        json_decref(j);
    }
    free(uses);
    return rc;
}

static int apply(pst_verb_run *v)
{
    pst_buf text = {0};
    pst_queue_spec *specs = NULL;
    size_t n = 0;
    const char *file = strcmp(v->args[0], "-") ? v->args[0] : "stdin";
    int rc = pst_fs_read(v->args[0], FILE_BYTES_MAX, &text, &v->err);
    if (!rc)
        rc = pst_queue_specs_parse(text.data ? text.data : "", text.len, file, &specs, &n, &v->err);
    for (size_t i = 0; !rc && i < n; i++) {
        free(specs[i].actor);
        specs[i].actor = pst_strdup(pst_account_name(NULL));
        specs[i].time = pst_now_us();
        rc = pst_queue_publish(v->client, specs[i].name, &specs[i], &v->err);
        if (!rc && !v->settings.quiet)
            printf("%s\n", specs[i].name);
    }
    pst_queue_specs_free(specs, n);
    pst_buf_done(&text);
    return rc;
}

static int delete_one(pst_verb_run *v)
{
    int rc = pst_queue_deletable(v->client, v->args[0], &v->err);
    return rc < 0 ? rc : pst_queue_publish(v->client, v->args[0], NULL, &v->err);
}

static int run_verb(int which, int argc, char **argv)
{
    pst_verb_run v;
    int wanted = which == LIST ? 0 : 1, unused = 0;
    int status = pst_verb_begin(&v, &usages[which], argc, argv, &unused, wanted, wanted);
    if (status >= 0)
        return status;
    pst_queues q = {0};
    int rc = which == LIST || which == SHOW ? pst_queues_read(v.client, &q, &v.err) : 0;
    if (!rc)
        switch (which) {
        case LIST: rc = list(&v, &q); break;
        case SHOW: rc = show(&v, &q); break;
        case APPLY: rc = apply(&v); break;
        default: rc = delete_one(&v);
        }
    pst_queues_done(&q);
    return pst_verb_end(&v, rc);
}

static int queues_run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    for (int i = 0; i < N_VERBS; i++)
        if (!strcmp(word, usages[i].verb + strlen("queues ")))
            return run_verb(i, argc - 1, argv + 1);
    bool help = !strcmp(word, "--help") || !strcmp(word, "-h");
    FILE *f = help ? stdout : stderr;
    if (!help && (!*word || *word == '-')) /* as `penstock nodes`: what there is */
        return run_verb(LIST, argc, argv);
    if (*word && !help)
        fprintf(f, "penstock queues: unknown verb %s\n", word);
    fprintf(f, "Usage: penstock queues list|show|apply|delete …\n\n");
    for (int i = 0; i < N_VERBS; i++) {
        char left[48];
        snprintf(left, sizeof left, "%s %s", usages[i].verb + strlen("queues "), usages[i].args);
        fprintf(f, "  %-16s %s\n", left, usages[i].summary);
    }
    fprintf(f, "\nExamples:\n  penstock queues apply queues.yml\n  penstock queues list\n");
    return help ? 0 : 2;
}

const pst_verb pst_queues_verb = {"queues", "queues of jobs: list, show, apply, delete", "jobs", queues_run,
                                  PST_USAGES(&usages[LIST], &usages[SHOW], &usages[APPLY], &usages[DELETE])};
