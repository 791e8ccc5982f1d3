/* with.c - `up --with`: a word becomes the arguments of `penstock sink`. What the words mean is the sink's to judge: a wrong one ends it with a sentence in its log, and `penstock status`
 * shows how it ended. Credentials come from files, or from the one variable that is handed to the sink that reads it and to no other service. */
#include "deploy/local/with.h"

#include "common/base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *target; /* the option that TARGET is for */
    const char *form;          /* of the target; NULL = it may be left out */
    const char *variable;      /* of our environment that it gets; NULL */
} kinds[] = {{"opensearch", "--url", "http://HOST:9200", "PENSTOCK_OPENSEARCH_CREDENTIALS"},
             {"files", "--dir", "DIR", NULL},
             {"tensorboard", "--dir", "DIR", NULL},
             {"prometheus", "--listen", NULL, NULL}};
enum { N_KINDS = sizeof kinds / sizeof *kinds, ARGS_MAX = 40 };

/* The kind whose name begins the text, with what may follow a name; N_KINDS = none. */
static size_t kind_at(const char *text)
{
    size_t n = strcspn(text, "=;,"), k = 0;
    while (k < N_KINDS && (strlen(kinds[k].name) != n || strncmp(kinds[k].name, text, n) != 0))
        k++;
    return k;
}

/* Where the sink that begins at text ends: at its end, or at a comma before another's name. */
static size_t length(const char *text)
{
    size_t n = strcspn(text, ",");
    while (text[n] && kind_at(text + n + 1) == N_KINDS && strchr(text, '='))
        n += 1 + strcspn(text + n + 1, ",");
    return n;
}

/* "files=DIR;format=avro" → sink files --dir DIR --format avro. The texts are cut in place. */
static int arguments(char *text, const char *args[ARGS_MAX], char *options[ARGS_MAX], pst_err *err)
{
    size_t k = kind_at(text), n = 0, n_options = 0;
    if (k == N_KINDS)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "up", 0,
                           "--with %.80s: there is opensearch=URL, files=DIR, tensorboard=DIR, prometheus[=ADDRESS:PORT]", text);
    char *rest = strchr(text, ';'), *target = text + strlen(kinds[k].name);
    if (rest)
        *rest++ = 0;
    bool named = *target == '=' && target[1];
    if (!named && (kinds[k].form || *target))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "up", 0, "--with %s: where to? %s=%s", kinds[k].name, kinds[k].name,
                           kinds[k].form ? kinds[k].form : "ADDRESS:PORT");
    args[n++] = "sink";
    args[n++] = kinds[k].name;
    if (named) {
        args[n++] = kinds[k].target;
        args[n++] = target + 1;
    }
    for (char *option = rest; option && *option; option = rest) {
        rest = strchr(option, ';');
        if (rest)
            *rest++ = 0;
        char *value = strchr(option, '=');
        if (n + 3 > ARGS_MAX || !value || value == option)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "up", 0,
                               "--with %s: ';%.60s': expected ;OPTION=VALUE as in `penstock sink %s --help`", kinds[k].name, option,
                               kinds[k].name);
        *value = 0;
        args[n++] = options[n_options++] = pst_sprintf("--%s", option);
        args[n++] = value + 1;
    }
    args[n] = NULL;
    return (int)k;
}

/* Each sink of the words: checked, and started where there are services. */
static int each(local_services *services, const char *const *words, size_t n, pst_err *err)
{
    bool seen[N_KINDS] = {0};
    int rc = 0;
    for (size_t w = 0; !rc && w < n; w++) {
        for (const char *p = words[w]; !rc; p += length(p) + 1) {
            const char *args[ARGS_MAX + 1];
            char *options[ARGS_MAX] = {0}, *text = pst_strndup(p, length(p));
            int k = arguments(text, args, options, err);
            if (k < 0)
                rc = k;
            else if (seen[k])
                rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "up", 0,
                                 "--with names %s twice; run the second by itself: penstock sink %s", kinds[k].name, kinds[k].name);
            else
                seen[k] = true;
            if (!rc && services) {
                char *name = pst_sprintf("sink:%s", kinds[k].name);
                rc = local_services_add_with(services, name, args, kinds[k].variable, err);
                free(name);
            }
            for (size_t i = 0; i < ARGS_MAX; i++)
                free(options[i]);
            free(text);
            if (!p[length(p)])
                break;
        }
    }
    return rc;
}

int local_with_check(const char *const *words, size_t n, pst_err *err)
{
    return each(NULL, words, n, err);
}

int local_with_start(local_services *services, const char *const *words, size_t n, pst_err *err)
{
    return each(services, words, n, err);
}
