/* task_array.c - Slurm's form of an array's indices (sbatch --array), since that is what people know. Indices are marked in a table of bits first, so that
 * overlapping ranges give each index once, in rising order, as Slurm does; what is too large is refused before anything is allocated by it.
 * A task's id is its array's with the index behind: whoever reads an id sees whose task it is, and a Trainer that comes next makes the same ids again.
 * Ids of jobs have no second dash (training_id.c), so no job can have the id of a task. */
#include "schemas/task_array.h"

#include "common/base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong(pst_err *err, const char *text, const char *what)
{
    return pst_err_set(
        err, PST_EINVAL, PST_CLASS_DATA, "manifest", 0,
        "%s; indices are \"0-99\", \"0-9:3\" (every third) or \"1,4,7\", with \"%%5\" behind for five at once at most, found \"%.60s\"",
        what, text);
}

/* A whole number of up to six digits; -1. */
static int number(const char **s)
{
    int n = 0, digits = 0;
    for (; **s >= '0' && **s <= '9' && digits < 7; (*s)++, digits++)
        n = n * 10 + (**s - '0');
    return digits && digits < 7 ? n : -1;
}

typedef struct table {
    unsigned char *marks;
    int low, high; /* of what is marked: an array of a manifest is read each time the manifest is, and most are small */
} table;

static int mark_range(const char **s, table *t, const char *text, pst_err *err)
{
    int from = number(s), to = from, step = 1;
    if (from >= 0 && **s == '-') {
        (*s)++;
        to = number(s);
        if (to >= 0 && **s == ':') {
            (*s)++;
            step = number(s);
        }
    }
    if (from < 0 || to < 0)
        return wrong(err, text, "an index is a whole number from 0 to 999999");
    if (step < 1)
        return wrong(err, text, "a step is a whole number from 1");
    if (to < from)
        return wrong(err, text, "a range ends before it begins");
    for (int i = from; i <= to; i += step)
        t->marks[i / 8] |= (unsigned char)(1 << i % 8);
    t->low = from < t->low ? from : t->low;
    t->high = to > t->high ? to : t->high;
    return 0;
}

int pst_task_array_parse(const char *text, pst_task_array *ret, pst_err *err)
{
    table t = {pst_alloc(PST_TASK_INDEX_MAX / 8 + 1), PST_TASK_INDEX_MAX, 0};
    const char *s = text;
    int rc = mark_range(&s, &t, text, err), limit = 0;
    while (!rc && *s == ',') {
        s++;
        rc = mark_range(&s, &t, text, err);
    }
    if (!rc && *s == '%') {
        s++;
        limit = number(&s);
        if (limit < 1)
            rc = wrong(err, text, "how many run at once is a whole number from 1");
    }
    if (!rc && *s)
        rc = wrong(err, text, "there is something behind the indices");
    size_t n = 0;
    for (int i = t.low; !rc && i <= t.high; i++)
        n += t.marks[i / 8] >> i % 8 & 1;
    if (n > PST_TASKS_MAX)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "manifest", 0, "has %zu tasks, at most %d are allowed; submit several arrays", n,
                         PST_TASKS_MAX);
    *ret = (pst_task_array){0};
    if (!rc) {
        *ret = (pst_task_array){pst_alloc(n * sizeof *ret->at), 0, limit};
        for (int i = t.low; i <= t.high; i++)
            if (t.marks[i / 8] >> i % 8 & 1)
                ret->at[ret->n++] = i;
    }
    free(t.marks);
    return rc;
}

void pst_task_array_done(pst_task_array *a)
{
    free(a->at);
    *a = (pst_task_array){0};
}

void pst_task_id(const char *array_id, int index, char *ret_id)
{
    snprintf(ret_id, PST_TASK_ID_LEN, "%.100s-%d", array_id, index);
}

int pst_task_index(const char *training_id)
{
    const char *first = strchr(training_id, '-'), *dash = strrchr(training_id, '-');
    if (!dash || dash == first)
        return -1;
    const char *s = dash + 1;
    int index = number(&s);
    return *s ? -1 : index;
}
