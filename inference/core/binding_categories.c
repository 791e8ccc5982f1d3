/* binding_categories.c - a model that knows its categories by name (metadata penstock.categories: by slot of its input, the place in the list is the
 * code) → the vocabularies of the features that fill those slots. So a text goes into the model as its library would have mapped it, and nobody has to
 * copy the list; who wrote one all the same is told where it says something else than the model.
 *
 * Slots are counted from the features alone. Where an array without slots: is among them, it is not known which field fills which slot, and
 * the features stay as they are: codes, as of a model without names. */
#include "inference/core/binding_priv.h"

#include "inference/core/words.h"

#include "common/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A name as records hold it; NULL = it is none (free()). */
static char *name_of(const json_t *v)
{
    char text[40];
    if (json_is_string(v))
        return pst_strdup(json_string_value(v));
    if (json_is_boolean(v))
        return pst_strdup(json_is_true(v) ? "true" : "false");
    if (json_is_integer(v))
        return pst_sprintf("%lld", (long long)json_integer_value(v));
    if (!json_is_real(v))
        return NULL;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, json_real_value(v));
        if (strtod(text, NULL) == json_real_value(v))
            break;
    }
    return pst_strdup(text);
}

static void drop_names(pst_vocabulary_entry *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i].text);
    free(names);
}

/* One list of names → words with their codes. */
static int read_names(const pst_binding *b, const json_t *list, size_t slot, pst_vocabulary_entry **ret, size_t *ret_n, pst_err *err)
{
    size_t n = json_array_size(list), i = 0;
    pst_vocabulary_entry *names = pst_alloc((n + 1) * sizeof *names);
    for (; i < n; i++) {
        names[i] = (pst_vocabulary_entry){name_of(json_array_get(list, i)), (double)i};
        if (!names[i].text)
            break;
    }
    if (!n || i < n) {
        drop_names(names, i);
        return score_binding_refuse(err, b, "its metadata penstock.categories holds no list of names for slot %zu", slot);
    }
    *ret = names;
    *ret_n = n;
    return 0;
}

/* A vocabulary of the pipeline's own has to say what the model says: every name, with its code. Further words may stand for a code too. */
static int compare(const pst_binding *b, const pst_feature *f, const pst_vocabulary_entry *names, size_t n, pst_err *err)
{
    score_words *own = score_words_new(f->vocabulary, f->n_vocabulary);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        double number;
        if (!score_words_text(own, (pst_slice){names[i].text, strlen(names[i].text)}, &number))
            rc = score_binding_refuse(err, b,
                                      "the vocabulary of feature %s lacks \"%.60s\", which the model knows as category %zu; leave the "
                                      "vocabulary out, the model has its own",
                                      f->field, names[i].text, i);
        else if (number != names[i].number)
            rc = score_binding_refuse(err, b,
                                      "the vocabulary of feature %s has \"%.60s\" as %.17g, the model as category %zu; leave the "
                                      "vocabulary out, the model has its own",
                                      f->field, names[i].text, number, i);
    }
    for (size_t i = 0; rc == 0 && i < f->n_vocabulary; i++) {
        double number = f->vocabulary[i].number;
        if (number != floor(number) || number < 0 || number >= (double)n)
            rc = score_binding_refuse(err, b, "the vocabulary of feature %s has \"%.60s\" as %.17g, the model has categories 0 to %zu",
                                      f->field, f->vocabulary[i].text, number, n - 1);
    }
    score_words_free(own);
    return rc;
}

static int name_feature(const pst_binding *b, pst_feature *f, const json_t *list, size_t slot, pst_err *err)
{
    pst_vocabulary_entry *names = NULL;
    size_t n = 0;
    if (f->one_hot)
        return score_binding_refuse(
            err, b, "feature %s is one_hot, and slot %zu of the model holds the code of a category; leave one_hot out", f->field, slot);
    if (f->scale != 1 || f->offset != 0 || f->has_clip)
        return f->has_vocabulary
                   ? score_binding_refuse(err, b, "feature %s is a category: scale, offset and clip change its code", f->field)
                   : 0;
    int rc = read_names(b, list, slot, &names, &n, err);
    if (rc == 0 && f->has_vocabulary) {
        rc = compare(b, f, names, n, err);
        drop_names(names, n);
    } else if (rc == 0) {
        f->has_vocabulary = true;
        f->vocabulary = names;
        f->n_vocabulary = n;
    }
    if (rc < 0)
        return rc;
    score_words *w = score_words_new(f->vocabulary, f->n_vocabulary);
    f->categories = true;
    f->numbers_pass = !score_words_have_numbers(w);
    score_words_free(w);
    return 0;
}

/* The slots that the features say they fill; 0 = an array's length is not said. */
static size_t slots_said(const pst_binding *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n_features; i++)
        n += b->features[i].slots ? b->features[i].slots : 1;
    return b->n_inputs == 1 && n == b->inputs[0].width ? n : 0;
}

int score_binding_categories(pst_binding *b, pst_err *err)
{
    const char *text = pst_model_meta(b->model, "penstock.categories");
    json_t *all = NULL;
    int rc = text ? pst_json_parse(text, strlen(text), "penstock.categories", &all, NULL) : 0;
    if (rc < 0 || (all && !json_is_object(all)))
        rc = score_binding_refuse(err, b, "its metadata penstock.categories is no object of lists by slot");
    bool counted = all && slots_said(b);
    size_t slot = 0;
    for (size_t i = 0; rc == 0 && i < b->n_features; i++) {
        pst_feature *f = &b->features[i];
        char key[24];
        snprintf(key, sizeof key, "%zu", slot);
        const json_t *list = counted && !f->text && !f->codes ? json_object_get(all, key) : NULL;
        if (list && (f->slots <= 1 || f->one_hot))
            rc = name_feature(b, f, list, slot, err);
        slot += f->slots ? f->slots : 1;
        if (rc == 0 && f->unknown != PST_UNKNOWN_MISSING && !f->has_vocabulary)
            rc =
                score_binding_refuse(err, b,
                                     "feature %s has unknown: %s, which is for words: it has neither vocabulary nor one_hot, and the model "
                                     "knows no categories by name there",
                                     f->field, pst_unknown_word_name(f->unknown));
    }
    json_decref(all);
    return rc;
}
