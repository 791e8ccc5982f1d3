/* logged_out.c - one number a name: sessions that end then or earlier are over. A session that begins in the second of a logout ends a second later than the
 * number, and the next logout raises it by one at least, so that also what happens within one second keeps its order. A name is forgotten when the last
 * of the sessions that it speaks of would have ended by itself, so the file does not grow with time. */
#include "producers/gateway/logged_out.h"

#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/map.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 16 << 20, MODE = 0600 };

struct gw_logged_out {
    char *path;   /* NULL: none */
    pst_map last; /* name → int64_t: its sessions that end then or before are over */
};

static void put(gw_logged_out *l, const char *name, int64_t last_s)
{
    int64_t *kept = pst_alloc(sizeof *kept);
    *kept = last_s;
    free(pst_map_put(&l->last, name, kept));
}

static int not_ours(const char *path, pst_err *err)
{
    return pst_err_set(err, PST_EPARSE, PST_CLASS_FATAL, "config", 0,
                       "%s is not what a gateway wrote there, so nobody knows who has logged out: remove it, and change the password of "
                       "whoever must stay out",
                       path);
}

static int read_file(gw_logged_out *l, pst_err *err)
{
    pst_buf text = {0};
    json_t *all = NULL, *v;
    const char *name;
    pst_err why = {0};
    int rc = pst_fs_read(l->path, FILE_MAX, &text, err);
    if (!rc && (pst_json_parse(text.data, text.len, l->path, &all, &why) < 0 || !json_is_object(all)))
        rc = not_ours(l->path, err);
    json_object_foreach(all, name, v)
    {
        if (!rc && !json_is_integer(v))
            rc = not_ours(l->path, err);
        else if (!rc)
            put(l, name, json_integer_value(v));
    }
    json_decref(all);
    pst_buf_done(&text);
    return rc;
}

int gw_logged_out_open(const char *path, gw_logged_out **ret_list, pst_err *err)
{
    gw_logged_out *l = pst_alloc(sizeof *l);
    l->path = path ? pst_strdup(path) : NULL;
    int rc = path && pst_fs_exists(path) ? read_file(l, err) : 0;
    if (rc < 0)
        gw_logged_out_free(l);
    else
        *ret_list = l;
    return rc;
}

void gw_logged_out_free(gw_logged_out *l)
{
    if (!l)
        return;
    pst_map_done(&l->last, free);
    free(l->path);
    free(l);
}

static int64_t last_of(const gw_logged_out *l, const char *name)
{
    const int64_t *last_s = pst_map_get(&l->last, name);
    return last_s ? *last_s : INT64_MIN;
}

bool gw_logged_out_is(const gw_logged_out *l, const char *name, int64_t until_s)
{
    return until_s <= last_of(l, name);
}

int64_t gw_logged_out_until(const gw_logged_out *l, const char *name, int64_t now_s, int64_t lasts_s)
{
    int64_t last_s = last_of(l, name), until_s = now_s + lasts_s;
    return until_s <= last_s ? last_s + 1 : until_s;
}

static int write_file(const gw_logged_out *l, int64_t now_s, pst_err *err)
{
    json_t *all = json_object();
    for (size_t i = 0; i < l->last.n; i++) {
        const int64_t *last_s = l->last.at[i].key ? l->last.at[i].value : NULL;
        if (last_s && *last_s > now_s)
            json_object_set_new(all, l->last.at[i].key, json_integer(*last_s));
    }
    char *text = pst_json_text(all);
    int rc = pst_fs_write_atomic(l->path, text, strlen(text), MODE, err);
    free(text);
    json_decref(all);
    return rc;
}

int gw_logged_out_note(gw_logged_out *l, const char *name, int64_t now_s, int64_t lasts_s, pst_err *err)
{
    put(l, name, gw_logged_out_until(l, name, now_s, lasts_s)); /* the latest end that a session of before can have */
    return l->path ? write_file(l, now_s, err) : 0;
}
