/* process_sets.h - which processes a generation has on a node: a few sets of processes that differ only in their number. Small and of fixed size, so
 * that a command, an intent and a spec hold it by value. @thread any. */
#ifndef PST_OBJECTS_PROCESS_SETS_H
#define PST_OBJECTS_PROCESS_SETS_H

#include <jansson.h>
#include <stddef.h>

typedef struct pst_process_set { /* <prefix>-<first>, <prefix>-<first + 1>, … */
    char prefix[24];             /* "learner", or a role */
    int first, count;
    int gpus; /* of each */
    int rank; /* of the first; -1: they have none (ps, evaluator) */
} pst_process_set;
enum { PST_PROCESS_SETS_MAX = 20 };

int pst_process_sets_count(const pst_process_set *sets, size_t n);
/* The i-th process, from 0, set by set. */
void pst_process_sets_name(const pst_process_set *sets, size_t n, int i, char ret_name[32]);
/* The set of a process, and its place in it; NULL = it is in none. */
const pst_process_set *pst_process_sets_find(const pst_process_set *sets, size_t n, const char *process, int *ret_index);

json_t *pst_process_sets_json(const pst_process_set *sets, size_t n);
/* From the member `processes` of spec; of one written before there were roles, from `learners`, `parameter_servers` and `gpus`. PST_EPARSE: malformed. */
int pst_process_sets_read(const json_t *spec, pst_process_set ret_sets[PST_PROCESS_SETS_MAX], size_t *ret_n);

#endif
