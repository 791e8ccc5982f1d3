/* main.c - one program, many verbs: finds the verb, prints the list, writes shell completions. Each service brings its own verb. */
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/opt.h"
#include "common/base/program.h"
#include "common/bus/bus.h"
#include "deploy/local/local.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int completion_run(int argc, char **argv);
static const pst_verb completion_verb = {"completion", "completions for bash, zsh, fish", "this computer", completion_run};

/* Programs of their own beside this one, penstock-NAME. */
static const pst_verb broker_verb = {"broker", "librdkafka's in-memory Kafka, for a look without Java", "this computer", NULL},
                      supervise_verb = {"supervise", "run one process of a job (started by the LCM)", NULL, NULL};

static const pst_verb *const verbs[] = {
    &pst_submit_verb,    &pst_list_verb,    &pst_show_verb,      &pst_why_verb,    &pst_events_verb, &pst_logs_verb,   &pst_metrics_verb,
    &pst_halt_verb,      &pst_resume_verb,  &pst_terminate_verb, &pst_delete_verb, &pst_nodes_verb,  &pst_init_verb,   &pst_models_verb,
    &pst_pipelines_verb, &pst_score_verb,   &pst_cat_verb,       &pst_lag_verb,    &pst_topics_verb, &pst_source_verb, &pst_trainer_verb,
    &pst_lcm_verb,       &pst_gateway_verb, &pst_registry_verb,  &supervise_verb,  &pst_learn_verb,  &pst_up_verb,     &pst_down_verb,
    &pst_status_verb,    &pst_demo_verb,    &pst_doctor_verb,    &pst_config_verb, &broker_verb,     &completion_verb,
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static void print_help(FILE *f)
{
    static const char *const groups[] = {"jobs", "models", "streams", "this computer", "services"};
    fprintf(f,
            "penstock %s: train models and score live streams on Apache Kafka.\n\nUsage: penstock VERB [options] …      penstock VERB "
            "--help tells more\n",
            PST_VERSION);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        fprintf(f, "\n%s\n", groups[g]);
        for (size_t i = 0; i < N_VERBS; i++)
            if (verbs[i]->group && !strcmp(verbs[i]->group, groups[g]))
                fprintf(f, "  %-12s %s\n", verbs[i]->name, verbs[i]->summary);
    }
    fprintf(f, "\nFirst steps:\n  penstock up --kafka --detach         # the platform with an Apache Kafka of its own\n"
               "  penstock init myjob && penstock submit myjob/manifest.yml myjob --wait\n  penstock doctor                      # when "
               "something does not work\n");
}

static int completion_run(int argc, char **argv)
{
    const char *shell = argc > 1 ? argv[1] : "";
    pst_buf words = {0};
    for (size_t i = 0; i < N_VERBS; i++)
        if (verbs[i]->group)
            pst_buf_printf(&words, "%s%s", words.len ? " " : "", verbs[i]->name);
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
        for (size_t i = 0; i < N_VERBS; i++)
            if (verbs[i]->group)
                printf("complete -c penstock -n __fish_use_subcommand -f -a %s -d '%s'\n", verbs[i]->name, verbs[i]->summary);
    } else {
        bool help = !strcmp(shell, "--help") || !strcmp(shell, "-h");
        fprintf(help ? stdout : stderr, "Usage: penstock completion bash|zsh|fish\n\nExamples:\n  source <(penstock completion bash)\n"
                                        "  penstock completion fish >~/.config/fish/completions/penstock.fish\n");
        rc = help ? 0 : 2;
    }
    pst_buf_done(&words);
    return rc;
}

static int unknown(const char *word)
{
    const char *names[N_VERBS];
    for (size_t i = 0; i < N_VERBS; i++)
        names[i] = verbs[i]->group ? verbs[i]->name : NULL;
    const char *near = pst_nearest(word, names, N_VERBS);
    fprintf(stderr, "penstock: unknown verb `%s`%s%s%s; penstock --help lists them\n", word, near ? "; did you mean `" : "",
            near ? near : "", near ? "`?" : "");
    return 2;
}

static const pst_verb *find(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++)
        if (!strcmp(verbs[i]->name, name))
            return verbs[i];
    return NULL;
}

/* penstock help VERB, penstock --help */
static int help(const char *name)
{
    const pst_verb *verb = name && *name != '-' ? find(name) : NULL;
    if (verb && verb->run)
        return verb->run(2, (char *[]){(char *)(uintptr_t)name, (char *)"--help", NULL});
    if (verb)
        return pst_program_become(name, (char *[]){(char *)"penstock", (char *)(uintptr_t)name, (char *)"--help", NULL});
    if (name && *name != '-')
        return unknown(name);
    print_help(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    const pst_verb *verb = argc > 1 ? find(argv[1]) : NULL;
    if (verb && !verb->run)
        return pst_program_become(verb->name, argv);
    pst_program_begin();
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return help(argc > 2 ? argv[2] : NULL);
    if (!strcmp(argv[1], "--version")) {
        printf("penstock %s (%s)\n", PST_VERSION, pst_bus_version());
        return 0;
    }
    if (!verb)
        return unknown(argv[1]);
    int rc = verb->run(argc - 1, argv + 1);
    if (fflush(stdout) && !rc)
        rc = 1;
    return rc;
}
