/* words.c - two tables with open addressing over one list of words, one by text and one by number, at most half full. A table beats bisection from a
 * few words on, and does not care for how many there are. Only the pipeline's words are ever put in, so that records, whatever they hold, cannot make
 * a chain of neighbours longer than those words made it. */
#include "inference/core/words.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT 0x1p53 /* from here on whole numbers of a record share a double */

typedef struct text_slot {
    const char *text; /* NULL = free */
    size_t len;
    double number;
} text_slot;

typedef struct number_slot {
    double x, number;
    bool used;
} number_slot;

struct score_words {
    text_slot *texts;
    number_slot *numbers; /* NULL = no word is a number */
    size_t mask;          /* of both */
};

static uint64_t mix(uint64_t h)
{
    h *= 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

/* Eight bytes at a time. */
static uint64_t hash_text(const char *s, size_t n)
{
    uint64_t h = mix(n + 1), part = 0;
    for (; n > 8; s += 8, n -= 8) {
        memcpy(&part, s, 8);
        h = mix(h ^ part);
    }
    part = 0;
    memcpy(&part, s, n);
    return mix(h ^ part);
}

static uint64_t hash_number(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return mix(mix(bits + 1));
}

/* The number that a word is, written the way numbers are usually written: "007" and "1e3" are names. */
static bool number_of(const char *word, double *ret)
{
    char again[40];
    char *end;
    if (!*word || strlen(word) >= sizeof again)
        return false;
    double x = strtod(word, &end);
    if (*end || !(fabs(x) < EXACT))
        return false;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(again, sizeof again, "%.*g", digits, x);
        if (!strcmp(again, word)) {
            *ret = x == 0 ? 0 : x; /* -0 is 0 */
            return true;
        }
    }
    return false;
}

static void put_text(score_words *w, const char *text, size_t len, double number)
{
    size_t at = hash_text(text, len) & w->mask;
    for (; w->texts[at].text; at = (at + 1) & w->mask)
        if (w->texts[at].len == len && !memcmp(w->texts[at].text, text, len))
            return;
    w->texts[at] = (text_slot){text, len, number};
}

static void put_number(score_words *w, double x, double number)
{
    if (!w->numbers)
        w->numbers = pst_alloc((w->mask + 1) * sizeof *w->numbers);
    size_t at = hash_number(x) & w->mask;
    for (; w->numbers[at].used; at = (at + 1) & w->mask)
        if (w->numbers[at].x == x)
            return;
    w->numbers[at] = (number_slot){x, number, true};
}

score_words *score_words_new(const pst_vocabulary_entry *entries, size_t n)
{
    score_words *w = pst_alloc(sizeof *w);
    size_t cap = 4;
    while (cap < 2 * n)
        cap *= 2;
    w->mask = cap - 1;
    w->texts = pst_alloc(cap * sizeof *w->texts);
    for (size_t i = 0; i < n; i++) {
        double x;
        put_text(w, entries[i].text, strlen(entries[i].text), entries[i].number);
        if (number_of(entries[i].text, &x))
            put_number(w, x, entries[i].number);
    }
    return w;
}

void score_words_free(score_words *w)
{
    if (!w)
        return;
    free(w->texts);
    free(w->numbers);
    free(w);
}

bool score_words_text(const score_words *w, pst_slice text, double *ret)
{
    const char *s = text.data ? text.data : "";
    for (size_t at = hash_text(s, text.len) & w->mask; w->texts[at].text; at = (at + 1) & w->mask) {
        const text_slot *t = &w->texts[at];
        if (t->len == text.len && !memcmp(t->text, s, t->len)) {
            *ret = t->number;
            return true;
        }
    }
    return false;
}

bool score_words_number(const score_words *w, double x, double *ret)
{
    if (!w->numbers)
        return false;
    x = x == 0 ? 0 : x;
    for (size_t at = hash_number(x) & w->mask; w->numbers[at].used; at = (at + 1) & w->mask) {
        if (w->numbers[at].x == x) {
            *ret = w->numbers[at].number;
            return true;
        }
    }
    return false;
}

bool score_words_have_numbers(const score_words *w)
{
    return w->numbers != NULL;
}
