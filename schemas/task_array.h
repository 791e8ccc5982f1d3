/* task_array.h - the tasks of a job array: which indices there are (penstock.array), and how a task's training id is made of its array's.
 * @thread any. */
#ifndef PST_SCHEMAS_TASK_ARRAY_H
#define PST_SCHEMAS_TASK_ARRAY_H

#include "common/base/err.h"

#include <stddef.h>

enum { PST_TASKS_MAX = 10000, PST_TASK_INDEX_MAX = 999999, PST_TASK_ID_LEN = 128 };
/* Each task has the manifest in its own state: together they stay below this. */
#define PST_TASKS_BYTES_MAX ((size_t)64 << 20)

typedef struct pst_task_array {
    int *at; /* indices, rising, none twice */
    size_t n;
    int limit; /* tasks at once at most; 0 = no limit */
} pst_task_array;

/* Slurm's grammar: "0-99", "0-9:3" (a step), "1,4,7", each with "%5" (five at once at most) behind. PST_EINVAL with the sentence, *ret empty. */
int pst_task_array_parse(const char *text, pst_task_array *ret, pst_err *err);
void pst_task_array_done(pst_task_array *a);
/* "<id of the array>-<index>". ret ≥ PST_TASK_ID_LEN bytes. */
void pst_task_id(const char *array_id, int index, char *ret_id);
/* The index in the id of a task, -1 = it is none. */
int pst_task_index(const char *training_id);

#endif
