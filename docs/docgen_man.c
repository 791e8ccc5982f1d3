/* docgen_man.c - man pages from the same tables: one of the program, one a verb (its sub-verbs in it), one a file format. Plain man(7) macros,
 * so that groff and mandoc both read them. */
#include "docs/docgen.h"

#include "common/base/fs.h"
#include "inference/pipeline/pipeline_keys.h"
#include "schemas/manifest_keys.h"
#include "verbs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* One line of text: backslashes and dashes escaped, no line begins with a control character, backticks left out. */
static void put(FILE *f, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", f);
    for (const char *p = text; *p; p++)
        if (*p == '\\')
            fputs("\\e", f);
        else if (*p == '-')
            fputs("\\-", f);
        else if (*p == '\n')
            fputc(' ', f);
        else if (*p != '`')
            fputc(*p, f);
    fputc('\n', f);
}

static FILE *open_page(const char *dir, const char *name, int section, const char *about)
{
    char *file = pst_sprintf("%s.%d", name, section), *path = pst_fs_join(dir, file);
    FILE *f = fopen(path, "w");
    if (!f)
        perror(path);
    free(file);
    free(path);
    if (!f)
        return NULL;
    fprintf(f, ".TH ");
    for (const char *p = name; *p; p++)
        fputc(toupper((unsigned char)*p), f);
    fprintf(f, " %d \"\" \"penstock " PST_VERSION "\" \"penstock\"\n.SH NAME\n%s \\- ", section, name);
    put(f, about);
    return f;
}

static void put_options(FILE *f, const pst_opt *opts, size_t n)
{
    char left[256];
    for (size_t i = 0; i < n; i++) {
        if (!opts[i].help)
            continue;
        docgen_option(&opts[i], left, sizeof left);
        fprintf(f, ".TP\n.B ");
        put(f, left);
        put(f, opts[i].help);
        if (*docgen_default(&opts[i])) {
            char *text = pst_sprintf("Default: %s.", docgen_default(&opts[i]));
            put(f, text);
            free(text);
        }
    }
}

static void put_examples(FILE *f, const char *examples)
{
    fprintf(f, ".nf\n");
    for (const char *p = examples; *p;) {
        size_t n = strcspn(p, "\n");
        char *line = pst_strndup(p, n);
        put(f, line);
        free(line);
        p += n + (p[n] == '\n');
    }
    fprintf(f, ".fi\n");
}

static void put_usage(FILE *f, const pst_usage *u, bool alone)
{
    char *line = pst_sprintf("penstock %s [options] %s", u->verb, u->args ? u->args : "");
    fprintf(f, alone ? ".SH SYNOPSIS\n.B " : ".SH ");
    put(f, line);
    free(line);
    if (alone)
        fprintf(f, ".SH DESCRIPTION\n");
    put(f, u->summary);
    if (u->text) {
        fprintf(f, ".PP\n");
        put(f, u->text);
    }
    if (u->n_opts)
        fprintf(f, alone ? ".SH OPTIONS\n" : ".SS Options\n");
    put_options(f, u->opts, u->n_opts);
    if (u->examples) {
        fprintf(f, alone ? ".SH EXAMPLES\n" : ".SS Examples\n");
        put_examples(f, u->examples);
    }
}

static int verb_page(const char *dir, const pst_verb *v)
{
    char *name = pst_sprintf("penstock-%s", v->name);
    FILE *f = open_page(dir, name, 1, v->summary);
    free(name);
    if (!f)
        return 1;
    for (size_t i = 0; v->usages[i]; i++)
        put_usage(f, v->usages[i], !v->usages[1]);
    fprintf(f, ".SH SEE ALSO\n.BR penstock (1)\n");
    return fclose(f) ? 1 : 0;
}

static int program_page(const char *dir)
{
    size_t n;
    const pst_opt *common = pst_opt_common(&n);
    FILE *f = open_page(dir, "penstock", 1, "train models and score live streams on Apache Kafka");
    if (!f)
        return 1;
    fprintf(f, ".SH SYNOPSIS\n.B penstock\n.I verb\n[options]\n.SH VERBS\n");
    for (size_t i = 0; i < pst_n_verbs; i++)
        if (pst_verbs[i]->group) {
            fprintf(f, ".TP\n.BR penstock\\-%s (1)\n", pst_verbs[i]->name);
            put(f, pst_verbs[i]->summary);
        }
    fprintf(f, ".SH OPTIONS OF EVERY VERB\n");
    put_options(f, common, n);
    fprintf(f, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < pst_n_exits; i++) {
        fprintf(f, ".TP\n.B %d\n", pst_exits[i].status);
        put(f, pst_exits[i].meaning);
    }
    fprintf(f, ".SH SEE ALSO\n.BR penstock\\-pipeline (5),\n.BR penstock\\-manifest (5)\n");
    return fclose(f) ? 1 : 0;
}

static int keys_page(const char *dir, const char *name, const char *about, const pst_keys *keys)
{
    char form[512];
    const char *section = NULL;
    FILE *f = open_page(dir, name, 5, about);
    if (!f)
        return 1;
    for (size_t i = 0; i < keys->n; i++) {
        const pst_key *k = &keys->at[i];
        if (!section || strcmp(section, k->section) != 0) {
            section = k->section;
            fprintf(f, ".SH ");
            put(f, !*section || !strcmp(section, "pipeline") ? "TOP LEVEL" : section);
        }
        docgen_key_form(k, form, sizeof form);
        char *line = pst_sprintf("%s: %s%s%s%s", k->name, form, k->def ? " [" : "", k->def ? k->def : "", k->def ? "]" : "");
        fprintf(f, ".TP\n.B ");
        put(f, line);
        put(f, k->help);
        free(line);
    }
    fprintf(f, ".SH SEE ALSO\n.BR penstock (1)\n");
    return fclose(f) ? 1 : 0;
}

int docgen_man(const char *dir)
{
    int rc = program_page(dir);
    for (size_t i = 0; i < pst_n_verbs && !rc; i++)
        if (pst_verbs[i]->group)
            rc = verb_page(dir, pst_verbs[i]);
    if (!rc)
        rc = keys_page(dir, "penstock-pipeline", "the file of a scoring pipeline", &pst_pipeline_keys);
    return rc ? rc : keys_page(dir, "penstock-manifest", "the file of a job", &pst_manifest_keys);
}
