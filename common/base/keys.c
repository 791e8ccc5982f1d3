/* keys.c - looking a key up in its table. Tables have at most some dozens of rows and are asked once a file, so they are searched from the
 * beginning: no index has to be kept true. */
#include "common/base/keys.h"

#include <string.h>

/* "data_stores[3].connection" is the section "data_stores[].connection". */
static bool same_section(const char *section, const char *path)
{
    for (;; section++, path++) {
        if (*section != *path)
            return false;
        if (!*section)
            return true;
        if (*path == '[')
            path += strcspn(path + 1, "]");
    }
}

const pst_key *pst_keys_find(const pst_keys *keys, const char *section, const char *name)
{
    for (size_t i = 0; i < keys->n; i++)
        if (!strcmp(keys->at[i].name, name) && same_section(keys->at[i].section, section))
            return &keys->at[i];
    return NULL;
}

size_t pst_keys_names(const pst_keys *keys, const char *section, const char **ret_names, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < keys->n && n < max; i++)
        if (same_section(keys->at[i].section, section))
            ret_names[n++] = keys->at[i].name;
    return n;
}

int64_t pst_key_hi(const pst_key *k)
{
    return k->hi >= 9.2e18 ? INT64_MAX : (int64_t)k->hi;
}

int pst_key_word(const pst_key *k, const char *text)
{
    for (int i = 0; k->words[i]; i++)
        if (!strcmp(k->words[i], text))
            return i;
    return -1;
}
