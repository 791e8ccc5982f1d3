/* verbs.c - the table of all verbs, for main.c and for what prints references and man pages (docs/docgen.c); and the one verb that is about
 * the table itself, `completion`. */
#include "verbs.h"

#include "common/base/buf.h"
#include "deploy/broker/broker_opts.h"
#include "deploy/local/local.h"
#include "inference/scoring.h"
#include "inference/serve/serve_ops.h"
#include "lcm/supervisor/supervise_opts.h"
#include "producers/gateway/gateway_verb.h"

#include <stdio.h>
#include <string.h>

static int completion_run(int argc, char **argv);
static const pst_usage completion_usage = {"completion",
                                           "bash|zsh|fish",
                                           "Print what a shell needs to complete verbs and options.",
                                           NULL,
                                           "source <(penstock completion bash)\npenstock completion fish "
                                           ">~/.config/fish/completions/penstock.fish",
                                           NULL,
                                           0,
                                           false};
static const pst_verb completion_verb = {"completion", "completions for bash, zsh, fish", "this computer", completion_run,
                                         PST_USAGES(&completion_usage)};

/* The gateway is told who serves models, and who knows pipelines: a service knows no other. */
static int gateway_run(int argc, char **argv)
{
    return pst_gateway_run(argc, argv, &pst_serve_ops, &pst_score_ops);
}
static const pst_verb gateway_verb = {"gateway", "the page, the HTTP API and event streams", "services", gateway_run,
                                      PST_USAGES(&pst_gateway_usage)};

/* Programs of their own beside this one, penstock-NAME. */
static const pst_verb broker_verb = {"broker", "librdkafka's in-memory Kafka, for a look without Java", "this computer", NULL,
                                     PST_USAGES(&pst_broker_usage)},
                      supervise_verb = {"supervise", "run one process of a job (started by the LCM)", NULL, NULL,
                                        PST_USAGES(&pst_supervise_usage)};

const pst_verb *const pst_verbs[] = {
    &pst_submit_verb,    &pst_list_verb,         &pst_show_verb,    &pst_why_verb,       &pst_events_verb, &pst_logs_verb,
    &pst_metrics_verb,   &pst_halt_verb,         &pst_resume_verb,  &pst_terminate_verb, &pst_delete_verb, &pst_hold_verb,
    &pst_release_verb,   &pst_reprioritise_verb, &pst_nodes_verb,   &pst_queues_verb,    &pst_init_verb,   &pst_models_verb,
    &pst_pipelines_verb, &pst_score_verb,        &pst_dlq_verb,     &pst_cat_verb,       &pst_lag_verb,    &pst_topics_verb,
    &pst_source_verb,    &pst_sink_verb,         &pst_trainer_verb, &pst_lcm_verb,       &gateway_verb,    &pst_registry_verb,
    &supervise_verb,     &pst_user_verb,         &pst_learn_verb,   &pst_up_verb,        &pst_down_verb,   &pst_status_verb,
    &pst_demo_verb,      &pst_doctor_verb,       &pst_devices_verb, &pst_config_verb,    &broker_verb,     &completion_verb,
};
const size_t pst_n_verbs = sizeof pst_verbs / sizeof *pst_verbs;

/* The scripts of bash and zsh ask the verb itself for its options, by --help: they need not be made anew with a new version. */
static int completion_run(int argc, char **argv)
{
    const char *shell = argc > 1 ? argv[1] : "";
    pst_buf words = {0};
    for (size_t i = 0; i < pst_n_verbs; i++)
        if (pst_verbs[i]->group)
            pst_buf_printf(&words, "%s%s", words.len ? " " : "", pst_verbs[i]->name);
    int rc = 0;
    if (!strcmp(shell, "bash"))
        printf("_penstock() {\n    local cur=${COMP_WORDS[COMP_CWORD]}\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        "
               "COMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n"
               "    elif [[ $cur == -* ]]; then\n        COMPREPLY=($(compgen -W \"$(penstock \"${COMP_WORDS[1]}\" --help 2>/dev/null | "
               "grep -o -- '--[a-z-]*' | sort -u)\" -- \"$cur\"))\n"
               "    else\n        COMPREPLY=($(compgen -f -- \"$cur\"))\n    fi\n}\ncomplete -F _penstock penstock\n",
               words.data);
    else if (!strcmp(shell, "zsh"))
        printf("#compdef penstock\n_penstock() {\n    if (( CURRENT == 2 )); then\n        compadd %s\n    else\n"
               "        compadd -- $(penstock $words[2] --help 2>/dev/null | grep -o -- '--[a-z-]*' | sort -u)\n        _files\n    "
               "fi\n}\ncompdef _penstock penstock\n",
               words.data);
    else if (!strcmp(shell, "fish")) {
        for (size_t i = 0; i < pst_n_verbs; i++)
            if (pst_verbs[i]->group)
                printf("complete -c penstock -n __fish_use_subcommand -f -a %s -d '%s'\n", pst_verbs[i]->name, pst_verbs[i]->summary);
    } else {
        bool help = !strcmp(shell, "--help") || !strcmp(shell, "-h");
        pst_opt_help(&completion_usage, help ? stdout : stderr);
        rc = help ? 0 : 2;
    }
    pst_buf_done(&words);
    return rc;
}
