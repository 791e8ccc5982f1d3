/* data_csv.c - training data from CSV files below DATA_DIR (sources.h). Columns are found by name, in each file anew, so that files of a folder may
 * differ in their order. Names lead down only and nothing but regular files is read; links are followed, since DATA_DIR is made of them. */
#include "common/base/array.h"
#include "common/base/csv.h"
#include "common/base/fs.h"
#include "trainer/learner/sources.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SNIFF_ROWS = 200, FILES_MAX = 10000 };

typedef struct csv_source {
    learn_data *d;
    pst_learn_settings *s;
    const learn_source_hooks *hooks;
    const char *dir; /* for messages */
    int dirfd;
    int64_t left; /* records that may still be read; -1 = all */
    int64_t rows; /* of all files so far: their numbers share them out among ranks */
} csv_source;

/* Names go down only. Links are followed: the supervisor makes DATA_DIR of links to what the job's data stores name. */
static bool goes_down(const char *name)
{
    for (const char *p = name; *p;) {
        size_t len = strcspn(p, "/");
        if (len == 2 && !memcmp(p, "..", 2))
            return false;
        p += len + (p[len] == '/');
    }
    return *name && *name != '/';
}

static int open_csv(csv_source *c, const char *name, pst_csv **ret, pst_err *err)
{
    if (!goes_down(name))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "learner", 0,
                           "%s leads out of %s: penstock.learner.data names a file or folder below DATA_DIR", name, c->dir);
    int fd = openat(c->dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without writer would block the open */
    if (fd < 0)
        return pst_err_sys(err, errno, "cannot read %s in %s", name, c->dir);
    struct stat st;
    FILE *f = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (!f) {
        close(fd);
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "learner", 0, "%s in %s is no regular file", name, c->dir);
    }
    return pst_csv_open(f, name, ret, err);
}

/* The columns in which the first records have numbers become the features. */
static int sniff_features(csv_source *c, const char *name, pst_err *err)
{
    pst_csv *csv;
    int rc = open_csv(c, name, &csv, err);
    if (rc < 0)
        return rc;
    size_t n = pst_csv_columns(csv), kept = 0;
    int *seen = pst_alloc((n + 1) * sizeof *seen);
    double v;
    for (int row = 0; row < SNIFF_ROWS && (rc = pst_csv_next(csv, err)) == 1; row++)
        for (size_t i = 0; i < n && pst_csv_fields(csv) == n; i++) {
            int what = pst_csv_number(pst_csv_field(csv, i), &v);
            if (what < 0)
                seen[i] = -1;
            else if (what == 0 && seen[i] >= 0)
                seen[i]++;
        }
    char **fields = pst_alloc((n + 1) * sizeof *fields);
    for (size_t i = 0; i < n; i++)
        if (seen[i] > 0 && !learn_field_is_time(pst_csv_name(csv, i)))
            fields[kept++] = pst_strdup(pst_csv_name(csv, i));
    if (rc >= 0)
        rc = learn_fields_take(c->s, fields, kept, name, err);
    if (!rc)
        learn_data_set_columns(c->d);
    for (size_t i = 0; i < kept; i++)
        free(fields[i]);
    free(fields);
    free(seen);
    pst_csv_close(csv);
    return rc < 0 ? rc : 0;
}

static int column_of(const pst_csv *csv, const char *file, const char *field, pst_err *err)
{
    int at = pst_csv_find(csv, field);
    if (at >= 0)
        return at;
    size_t n = pst_csv_columns(csv);
    const char **names = pst_alloc((n + 1) * sizeof *names);
    for (size_t i = 0; i < n; i++)
        names[i] = pst_csv_name(csv, i);
    const char *near = pst_nearest(field, names, n);
    pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "learner", 0, "%s has no column %s%s%s%s; its first columns are %s%s%s", file, field,
                near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", n ? names[0] : "", n > 1 ? ", " : "",
                n > 1 ? names[1] : "");
    free(names);
    return PST_EINVAL;
}

/* features' columns, then the target's. */
static int map_columns(csv_source *c, const pst_csv *csv, const char *file, int *columns, pst_err *err)
{
    for (int i = 0; i < c->s->n_features; i++) {
        const pst_learn_feature *f = &c->s->features[i];
        if (f->slots > 1)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "learner", 0,
                               "feature %s has slots: %d, but a column of a CSV file holds one number a record", f->field, f->slots);
        if ((columns[i] = column_of(csv, file, f->field, err)) < 0)
            return columns[i];
    }
    columns[c->s->n_features] = c->s->target ? column_of(csv, file, c->s->target, err) : 0;
    return columns[c->s->n_features] < 0 ? columns[c->s->n_features] : 0;
}

/* Returns 0 for a row that cannot be read, too: it is counted, and the training goes on without it. */
static int one_row(csv_source *c, const pst_csv *csv, const char *file, const int *columns, double *numbers, uint8_t *missing, pst_err *err)
{
    const pst_learn_settings *s = c->s;
    int rc = 0;
    if (pst_csv_fields(csv) != pst_csv_columns(csv)) {
        learn_data_bad(c->d, "%s:%lld has %zu fields, the header has %zu", file, (long long)pst_csv_line(csv), pst_csv_fields(csv),
                       pst_csv_columns(csv));
        return 0;
    }
    for (int i = 0; i < s->n_features; i++) {
        const char *text = pst_csv_field(csv, (size_t)columns[i]);
        if (s->features[i].one_hot) {
            missing[i] = !*text;
            rc = *text ? learn_words_number(c->d->words[i], (pst_slice){text, strlen(text)}, &numbers[i], err) : 0;
            if (rc < 0)
                return rc;
            continue;
        }
        int what = pst_csv_number(text, &numbers[i]);
        if (what < 0) {
            learn_data_bad(c->d,
                           "%s:%lld: %s is \"%.40s\", which is no number (for words: {field: NAME, one_hot: learn} under "
                           "penstock.learner.features; or leave the column out)",
                           file, (long long)pst_csv_line(csv), s->features[i].field, text);
            return 0;
        }
        missing[i] = what == 1;
    }
    learn_target target = {.number = NAN};
    if (s->target) {
        const char *text = pst_csv_field(csv, (size_t)columns[s->n_features]);
        if (s->classes)
            target.text = *text ? (pst_slice){text, strlen(text)} : (pst_slice){0};
        else if (pst_csv_number(text, &target.number) < 0) {
            learn_data_bad(c->d, "%s:%lld: the target %s is \"%.40s\", which is no number", file, (long long)pst_csv_line(csv), s->target,
                           text);
            return 0;
        }
    }
    return learn_data_add(c->d, numbers, missing, &target, err);
}

static bool is_mine(csv_source *c)
{
    const learn_pool *p = c->d->pool;
    return !p || c->rows++ % p->world == p->rank;
}

static int one_file(csv_source *c, const char *name, pst_err *err)
{
    int rc = c->s->n_features ? 0 : sniff_features(c, name, err);
    pst_csv *csv = NULL;
    if (!rc)
        rc = open_csv(c, name, &csv, err);
    if (rc < 0)
        return rc;
    size_t n = (size_t)c->s->n_features + 1;
    int *columns = pst_alloc(n * sizeof *columns);
    double *numbers = pst_alloc(n * sizeof *numbers);
    uint8_t *missing = pst_alloc(n);
    rc = map_columns(c, csv, name, columns, err);
    for (int64_t row = 0; rc >= 0 && c->left != 0 && (rc = pst_csv_next(csv, err)) == 1; row++) {
        if (is_mine(c))
            rc = one_row(c, csv, name, columns, numbers, missing, err);
        c->left -= c->left > 0;
        if (rc >= 0 && row % 1000 == 0 && c->hooks->stopped(c->hooks->arg))
            rc = PST_ESTOPPED;
    }
    free(columns);
    free(numbers);
    free(missing);
    pst_csv_close(csv);
    return rc < 0 ? rc : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of all *.csv files of a folder (relative to c->dirfd), sorted. */
static size_t list_folder(csv_source *c, const char *folder, char ***ret)
{
    size_t n = 0;
    char **names = NULL;
    int fd = openat(c->dirfd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *e; d && n < FILES_MAX && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (e->d_name[0] == '.' || len < 5 || strcasecmp(e->d_name + len - 4, ".csv"))
            continue;
        names = pst_array_one_more(names, n, sizeof *names);
        names[n++] = strcmp(folder, ".") ? pst_fs_join(folder, e->d_name) : pst_strdup(e->d_name);
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    if (n)
        qsort(names, n, sizeof *names, by_name);
    *ret = names;
    return n;
}

int learn_data_read_csv(learn_data *d, pst_learn_settings *s, const char *data_dir, const char *path, int64_t records_max,
                        const learn_source_hooks *hooks, pst_err *err)
{
    csv_source c = {d, s, hooks, data_dir, open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), records_max > 0 ? records_max : -1, 0};
    if (c.dirfd < 0)
        return pst_err_sys(err, errno, "cannot open the data folder %s", data_dir);
    struct stat st;
    int rc = 0;
    bool folder = !path || (goes_down(path) && fstatat(c.dirfd, path, &st, 0) == 0 && S_ISDIR(st.st_mode));
    if (!folder) {
        rc = one_file(&c, path, err);
    } else {
        char **names;
        size_t n = list_folder(&c, path ? path : ".", &names);
        if (!n)
            rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "learner", 0,
                             "there is no *.csv file in %s%s%s; give a data store of type topic, mount or files, or penstock.learner.data",
                             data_dir, path ? "/" : "", path ? path : "");
        for (size_t i = 0; i < n; i++) {
            if (!rc && c.left != 0)
                rc = one_file(&c, names[i], err);
            free(names[i]);
        }
        free(names);
        hooks->say(hooks->arg, "%zu CSV file%s in %s%s%s", n, n == 1 ? "" : "s", data_dir, path ? "/" : "", path ? path : "");
    }
    close(c.dirfd);
    return rc;
}
