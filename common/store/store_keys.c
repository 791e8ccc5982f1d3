/* store_keys.c - the fields of a document that every back end makes findable: below them, so that they do not call their chooser (store.c). A
 * document without them is no fault: it is found by none of them. */
#include "common/store/store_internal.h"

store_keys store_keys_of(const json_t *doc)
{
    const char *state = json_string_value(json_object_get(doc, "state"));
    const char *user = json_string_value(json_object_get(doc, "user"));
    return (store_keys){state ? state : "", user ? user : "", json_integer_value(json_object_get(doc, "submitted_at"))};
}
