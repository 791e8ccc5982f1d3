/* main.c - one program, many verbs: finds the verb, prints the list. Each service brings its own verb; verbs.c has the table. */
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/opt.h"
#include "common/base/program.h"
#include "common/bus/bus.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERBS_MAX = 100 };

static void print_help(FILE *f)
{
    static const char *const groups[] = {"jobs", "models", "streams", "this computer", "services"};
    fprintf(f,
            "penstock %s: train models and score live streams on Apache Kafka.\n\nUsage: penstock VERB [options] …      penstock VERB "
            "--help tells more\n",
            PST_VERSION);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        fprintf(f, "\n%s\n", groups[g]);
        for (size_t i = 0; i < pst_n_verbs; i++)
            if (pst_verbs[i]->group && !strcmp(pst_verbs[i]->group, groups[g]))
                fprintf(f, "  %-12s %s\n", pst_verbs[i]->name, pst_verbs[i]->summary);
    }
    fprintf(f, "\nFirst steps:\n  penstock up --kafka --detach         # the platform with an Apache Kafka of its own\n"
               "  penstock init myjob && penstock submit myjob/manifest.yml myjob --wait\n  penstock doctor                      # when "
               "something does not work\n");
}

static int unknown(const char *word)
{
    const char *names[VERBS_MAX];
    PST_ASSERT(pst_n_verbs <= VERBS_MAX);
    for (size_t i = 0; i < pst_n_verbs; i++)
        names[i] = pst_verbs[i]->group ? pst_verbs[i]->name : NULL;
    const char *near = pst_nearest(word, names, pst_n_verbs);
    fprintf(stderr, "penstock: unknown verb `%s`%s%s%s; penstock --help lists them\n", word, near ? "; did you mean `" : "",
            near ? near : "", near ? "`?" : "");
    return 2;
}

static const pst_verb *find(const char *name)
{
    for (size_t i = 0; i < pst_n_verbs; i++)
        if (!strcmp(pst_verbs[i]->name, name))
            return pst_verbs[i];
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
