/* keys.h - the keys of a YAML file in one table. Its reader takes limits, words and defaults from the rows, and the reference under docs/
 * is printed from the same rows, so that a key exists in both or in neither.
 *
 *     static const pst_key rows[] = {{"batching", "count", PST_KEY_WHOLE, .lo = 1, .hi = 100000, .def = "512", .help = "records of a batch"}};
 *     const pst_keys keys = {rows, 1};
 *     const pst_key *k = pst_keys_find(&keys, "batching", "count");
 *
 * Tables are constant: @thread any. */
#ifndef PST_BASE_KEYS_H
#define PST_BASE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    PST_KEY_TEXT = 0, /* one line; hi = bytes at most */
    PST_KEY_BLOCK,    /* text of several lines */
    PST_KEY_NAME,     /* letters, digits, . _ -; begins with a letter or digit */
    PST_KEY_TEXTS,    /* a list of names, or one */
    PST_KEY_WORD,     /* one of words */
    PST_KEY_WHOLE,
    PST_KEY_NUMBER,
    PST_KEY_BYTES, /* "64MiB" */
    PST_KEY_SPAN,  /* "5ms"; lo and hi in microseconds */
    PST_KEY_MAPPING,
    PST_KEY_LIST,
    PST_KEY_OTHER /* form says it */
} pst_key_kind;

typedef struct pst_key {
    const char *section; /* where it stands: "batching", "rollout.canary", "data_stores[]" = in each element of the list */
    const char *name;
    pst_key_kind kind;
    const char *form;         /* what is written there, where kind does not say it; NULL */
    const char *const *words; /* PST_KEY_WORD: NULL-terminated, in the order of the reader's enum */
    double lo, hi;            /* both 0 = no limits */
    bool above;               /* lo itself is not allowed */
    const char *def;          /* as it would be written; NULL = none, or help says it */
    const char *help;
} pst_key;

typedef struct pst_keys {
    const pst_key *at;
    size_t n;
} pst_keys;

/* NULL = there is no such key. Numbers in brackets do not count: "data_stores[3]" is "data_stores[]". */
const pst_key *pst_keys_find(const pst_keys *keys, const char *section, const char *name);
/* The names in a section, for "did you mean": at most max, returns how many. */
size_t pst_keys_names(const pst_keys *keys, const char *section, const char **ret_names, size_t max);
/* hi as an integer: what a double cannot hold exactly becomes the largest. */
int64_t pst_key_hi(const pst_key *k);
/* Index among words; -1 = none of them. */
int pst_key_word(const pst_key *k, const char *text);

#endif
