/* names.h - name → number, for the names of a model while it is read. Not installed.
 *
 *     eng_names n = {0};
 *     eng_names_put(&n, "x", 3);                 // replaces
 *     int id = eng_names_get(&n, "x");           // -1 = absent
 *     for (size_t i = 0; i < n.n; i++) use(n.at[i].name, n.at[i].value);      // in the order of the first put
 *     eng_names_done(&n);
 *
 * Names are borrowed and must outlive the table. Memory is the engine's (heap.h): a failure unwinds. The hash is keyed by a
 * number of this process, so a file cannot be made whose names all meet in one place. Threads: one owner. */
#ifndef PST_ENGINE_NAMES_H
#define PST_ENGINE_NAMES_H

#include <stddef.h>
#include <stdint.h>

typedef struct eng_name {
    const char *name;
    uint32_t hash;
    int value;
} eng_name;

typedef struct eng_names {
    eng_name *at;
    size_t n, cap;
    uint32_t *index; /* position in at + 1; 0 = empty; twice cap, a power of two */
} eng_names;

int eng_names_get(const eng_names *t, const char *name);
void eng_names_put(eng_names *t, const char *name, int value); /* value >= 0 */
void eng_names_done(eng_names *t);

#endif
