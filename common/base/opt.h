/* opt.h - the command line of a verb from one table: parsing, --help, completion come from it. The options that
 * every verb has are added by themselves and go into pst_settings.
 *
 *     typedef struct { bool wait; char *request_id; int64_t timeout_us; } submit_opts;
 *     static const pst_opt opts[] = {
 *         {"wait", 'w', PST_OPT_BOOL, offsetof(submit_opts, wait), NULL, NULL, "wait until the job has ended"},
 *         {"request-id", 0, PST_OPT_STR, offsetof(submit_opts, request_id), "R", NULL, "same request, same job"}};
 *     static const pst_usage usage = {"submit", "MANIFEST [DIR|ZIP]", "Publish a job request.", "…", "penstock submit m.yml .", opts, 2};
 *     rc = pst_opt_parse(&usage, argc, argv, &o, &settings, &args, &n_args, &err);   // 0 go on, 1 printed help: exit 0, < 0 usage: exit 2
 */
#ifndef PST_BASE_OPT_H
#define PST_BASE_OPT_H

#include "common/base/err.h"
#include "common/base/settings.h"

typedef enum {
    PST_OPT_BOOL,   /* bool; --name, --no-name; of every verb's -v, which has a value_name: -v, -vWORD, --name, --name=WORD */
    PST_OPT_STR,    /* const char *, borrowed from argv or the default */
    PST_OPT_INT,    /* int64_t */
    PST_OPT_DOUBLE, /* double */
    PST_OPT_BYTES,  /* int64_t, "64MiB" */
    PST_OPT_SPAN,   /* int64_t microseconds, "5ms" */
    PST_OPT_LIST    /* pst_opt_list: repeatable */
} pst_opt_kind;

typedef struct pst_opt_list {
    const char **items; /* free(items) only */
    size_t n;
} pst_opt_list;

typedef struct pst_opt {
    const char *name;
    char letter; /* 0 = none */
    pst_opt_kind kind;
    size_t offset;          /* into the verb's struct */
    const char *value_name; /* shown in the help: "N", "FILE"; of numbers with their range: "N 1..100000", else 0..2147483647 */
    const char *def;        /* default as text; NULL = zero */
    const char *help;
} pst_opt;

typedef struct pst_usage {
    const char *verb;     /* "submit", "models register" */
    const char *args;     /* "MANIFEST [DIR|ZIP]"; NULL, "" = none */
    const char *summary;  /* one line */
    const char *text;     /* paragraphs; NULL */
    const char *examples; /* one command a line; NULL */
    const pst_opt *opts;
    size_t n_opts;
    bool letters_only; /* unused; 0 */
} pst_usage;

/* argv[0] is the verb. Options and arguments may be mixed; "--" ends options. ret_args: borrowed pointers in a new array (free()).
 * Numbers out of range, unknown options: PST_EINVAL with the nearest option name. settings are resolved completely (env, files, profile). */
int pst_opt_parse(const pst_usage *usage, int argc, char **argv, void *ret_opts, pst_settings *ret_settings, char ***ret_args,
                  int *ret_n_args, pst_err *err);
/* Secrets given with -X and in addresses are overwritten in argv once the settings have them (secret.h). */
/* The options that every verb has. */
const pst_opt *pst_opt_common(size_t *ret_n);
void pst_opt_help(const pst_usage *usage, void *file); /* FILE * */

/* One verb of the program; services export one each and main.c lists them. run: argv[0] is the verb, returns the exit status. */
typedef struct pst_verb {
    const char *name;
    const char *summary; /* one line for `penstock --help` */
    const char *group;   /* "jobs", "models", "streams", "services", "this computer"; NULL = not listed (internal) */
    int (*run)(int argc, char **argv);
    const pst_usage *const *usages; /* one, or one a sub-verb; NULL-terminated. The references and man pages are printed from them. */
} pst_verb;
#define PST_USAGES(...)        \
    (const pst_usage *const[]) \
    {                          \
        __VA_ARGS__, NULL      \
    }

#endif
