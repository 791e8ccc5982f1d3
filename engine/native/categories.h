/* categories.h - the names of a model's categories: what its library mapped words by, as JSON for the metadata `penstock.categories`.
 *
 *     {"1": ["truck", "car"], "3": [10, 20]}        by feature; the place in the list is the code that the trees know
 *
 * A list that JSON cannot hold (a NUL, no UTF-8) is left out, as if the file had no names for that feature: the model scores codes without them.
 * @thread any, one owner. */
#ifndef PST_ENGINE_NATIVE_CATEGORIES_H
#define PST_ENGINE_NATIVE_CATEGORIES_H

#include "engine/heap.h"
#include "engine/graph.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct eng_categories {
    eng_heap_text all, one; /* what is finished; the list at hand */
    size_t n, n_words;      /* lists in all; words in the list at hand */
    bool spoilt;            /* the list at hand cannot be had */
} eng_categories;

void eng_categories_begin(eng_categories *c);
void eng_categories_text(eng_categories *c, const char *s, size_t n);
void eng_categories_number(eng_categories *c, int64_t v);
void eng_categories_end(eng_categories *c, int64_t feature); /* the list at hand is this feature's; an empty one is none */
/* A list of that feature as JSON already. */
void eng_categories_json(eng_categories *c, int64_t feature, const char *json, size_t n);
/* The whole, in zone; NULL = no list. The draft is freed. */
const char *eng_categories_take(eng_categories *c, eng_zone *zone);

#endif
