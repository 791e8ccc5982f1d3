/* names.h - name → number, for the names of a model while it is read. Not installed.
 *
 *     pst_names n = {0};
 *     pst_names_put(&n, "x", 3);                 // replaces
 *     int id = pst_names_get(&n, "x");           // -1 = absent
 *     for (size_t i = 0; i < n.n; i++) use(n.at[i].name, n.at[i].value);      // in the order of the first put
 *     pst_names_done(&n);
 *
 * Names are borrowed and must outlive the table. Memory is the engine's (heap.h): a failure unwinds. The hash is keyed by a
 * number of this process, so a file cannot be made whose names all meet in one place. Threads: one owner. */
#ifndef PST_ENGINE_NAMES_H
#define PST_ENGINE_NAMES_H

#include <stddef.h>
#include <stdint.h>

typedef struct pst_name {
    const char *name;
    uint32_t hash;
    int value;
} pst_name;

typedef struct pst_names {
    pst_name *at;
    size_t n, cap;
    uint32_t *index; /* position in at + 1; 0 = empty; twice cap, a power of two */
} pst_names;

int pst_names_get(const pst_names *t, const char *name);
void pst_names_put(pst_names *t, const char *name, int value); /* value >= 0 */
void pst_names_done(pst_names *t);

#endif
