/* code_sweep.c - archives of code that no job needs any more are removed. A pass lists what is old, then looks in each step which of it is needed now: what is decided in one step is done
 * in the same, so that no request comes between. Names that are no digest are not ours to remove. */
#include "trainer/code_sweep.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 200, STEP_US = 100000, OLD_MAX = 20000, DIGEST = 64 };

#define EVERY_US  ((int64_t)600 * 1000000)
#define DRAFTS_US ((int64_t)86400 * 1000000) /* nobody writes one object for a day */

struct trainer_code_sweep {
    int64_t keep_us, every_us, next_us;
    char **old; /* keys, of the pass that is under way */
    size_t n, cap, at;
    int64_t before_us; /* of the pass */
    int64_t removed;
};

trainer_code_sweep *trainer_code_sweep_new(int64_t keep_us)
{
    trainer_code_sweep *s = pst_alloc(sizeof *s);
    s->keep_us = keep_us;
    s->every_us = keep_us < EVERY_US ? keep_us / 2 : EVERY_US;
    return s;
}

static void end_pass(trainer_code_sweep *s)
{
    if (s->removed)
        pst_log(PST_LOG_INFO, "trainer", "event=code_swept archives=%lld", (long long)s->removed);
    for (size_t i = 0; i < s->n; i++)
        free(s->old[i]);
    s->n = s->at = 0;
    s->removed = 0;
}

void trainer_code_sweep_free(trainer_code_sweep *s)
{
    if (!s)
        return;
    end_pass(s);
    free(s->old);
    free(s);
}

static const char *digest_in(const char *key)
{
    const char *base = strrchr(key, '/');
    base = base ? base + 1 : key;
    return strlen(base) == DIGEST && strspn(base, "0123456789abcdef") == DIGEST ? base : NULL;
}

static void note(void *arg, const char *key, int64_t put_us)
{
    trainer_code_sweep *s = arg;
    if (put_us >= s->before_us || !digest_in(key) || s->n == OLD_MAX)
        return;
    s->old = pst_array_room(s->old, s->n, &s->cap, sizeof *s->old);
    s->old[s->n++] = pst_strdup(key);
}

/* By its digest, and by the name in its address: a job may give either. */
static void need(void *arg, const pst_code_ref *code)
{
    pst_map *needed = arg;
    char lower[DIGEST + 1];
    const char *named = digest_in(code->uri);
    if (named)
        pst_map_put(needed, named, needed);
    if (strlen(code->sha256) != DIGEST)
        return;
    for (size_t i = 0; i <= DIGEST; i++)
        lower[i] = (char)tolower((unsigned char)code->sha256[i]);
    pst_map_put(needed, lower, needed);
}

/* A store that is away ends the pass: the Trainer waits here, for each archive as long as a request may take. In a bucket a few are enough for a step. */
static void remove_some(trainer_code_sweep *s, pst_objects *objects, const tcore *core)
{
    pst_map needed = {0};
    bool away = false;
    int64_t begun_us = pst_mono_us();
    tcore_codes(core, need, &needed);
    for (int i = 0; i < STEP && s->at < s->n && !away && pst_mono_us() - begun_us < STEP_US; i++, s->at++) {
        pst_err err = {0};
        bool removed = false;
        const char *key = s->old[s->at];
        if (pst_map_get(&needed, digest_in(key)))
            continue;
        away = pst_objects_expire(objects, key, s->before_us, &removed, &err) < 0 && err.cls == PST_CLASS_RETRY;
        if (err.code)
            pst_log_err("trainer", &err);
        s->removed += removed;
    }
    pst_map_done(&needed, NULL);
    if (away || s->at == s->n)
        end_pass(s);
}

void trainer_code_sweep_step(trainer_code_sweep *s, pst_objects *objects, const tcore *core, int64_t mono_us, int64_t wall_us)
{
    pst_err err = {0};
    if (!s->keep_us)
        return;
    if (s->n) {
        remove_some(s, objects, core);
        return;
    }
    if (mono_us < s->next_us)
        return;
    s->next_us = mono_us + s->every_us;
    s->before_us = wall_us - s->keep_us;
    pst_objects_expire_drafts(objects, wall_us - DRAFTS_US);
    if (pst_objects_each(objects, "code", note, s, &err) < 0)
        pst_log_err("trainer", &err);
}
