/* rollout.c - the order of the two writes of a promotion makes it safe to be cut off: the alias first, then the spec without its canary. Between them
 * the canary and the primary are one version; done again, the alias is there already and only the spec is written. */
#include "inference/rollout.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/settings.h"
#include "common/platform/codec.h"
#include "common/platform/models.h"
#include "inference/pipeline/pipeline_edit.h"
#include "inference/run/score_report.h"
#include "schemas/events.h"

#include <stdlib.h>
#include <string.h>

enum { PUBLISH_TIMEOUT_MS = 30000 };

/* How a promotion's move of the alias is known again. */
#define PROMOTED "promoted from the canary of pipeline "

static int refuse(pst_verb_run *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int refuse(pst_verb_run *v, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(&v->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s", text);
}

/* ---- stops ----------------------------------------------------------------------------------------------------------------- */

typedef struct telling {
    pst_client *c;
    const pst_pipeline *p;
    char spec[65];
    pst_model_event stop; /* the first of this spec; name NULL = none */
    pst_models *models;
} telling;

static int hear(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    telling *t = arg;
    pst_model_event e;
    if (!r->value || pst_codec_decode(t->c->codec, &pst_model_event_type, r->value, r->value_len, r->timestamp_ms, &e, NULL) < 0)
        return 0;
    pst_models_apply(t->models, &e);
    if (!t->stop.name && pst_score_report_is_stop(&e, t->p, t->spec))
        t->stop = e;
    else
        pst_event_clear(&pst_model_event_type, &e);
    return 0;
}

/* Why the canary of this very text was stopped, to be freed; NULL = it was not. */
static int stopped(pst_verb_run *v, const pst_pipeline *p, char **ret_why)
{
    telling t = {.c = v->client, .p = p, .models = pst_models_new()};
    pst_score_report_spec(p, t.spec);
    pst_err e = {0};
    int rc = pst_client_scan(v->client, PST_TOPIC_MODELS, NULL, hear, &t, &e);
    *ret_why = t.stop.name ? pst_strdup(t.stop.reason ? t.stop.reason : "") : NULL;
    if (t.stop.name)
        pst_event_clear(&pst_model_event_type, &t.stop);
    pst_models_free(t.models);
    if (rc < 0 && rc != PST_ENOTFOUND) /* no topic yet: no stop yet */
        v->err = e;
    return rc == PST_ENOTFOUND ? 0 : rc;
}

/* A text that is as one was when its canary was stopped brings no canary back; whoever has just asked for one has to know. */
static int tell_rests(pst_verb_run *v, const pst_pipeline_spec *s, const char *text)
{
    pst_pipeline *p = NULL;
    char *why = NULL;
    int rc = pst_pipeline_parse_published(text, strlen(text), s->name, &p, &v->err);
    if (rc == 0 && p->has_canary)
        rc = stopped(v, p, &why);
    if (why)
        fprintf(stderr, "%s: its canary rests all the same, for under this very text it was stopped (%s); change a number of it\n", s->name,
                why);
    free(why);
    pst_pipeline_free(p);
    return rc;
}

/* ---- the spec -------------------------------------------------------------------------------------------------------------- */

static int judge(pst_verb_run *v, const pst_pipeline_spec *s, const char *text)
{
    pst_pipeline *p = NULL;
    int rc = pst_pipeline_parse_published(text, strlen(text), s->name, &p, &v->err);
    if (rc == 0)
        rc = score_pipelines_judge(v->client, p, NULL, &v->err);
    pst_pipeline_free(p);
    return rc;
}

static int publish(pst_verb_run *v, const pst_pipeline_spec *s, char *text)
{
    pst_pipeline_spec next = {.name = s->name, .spec = text, .actor = (char *)(uintptr_t)pst_account_name(NULL), .time = pst_now_us()};
    return pst_client_publish(v->client, PST_TOPIC_PIPELINES, &pst_pipeline_spec_type, s->name, &next, PUBLISH_TIMEOUT_MS, NULL, NULL,
                              &v->err);
}

/* With --dry-run: judged all the same, and shown in place of being published. */
static int change(pst_verb_run *v, const pst_pipeline_spec *s, const json_t *rollout, const score_rollout_opts *o)
{
    char *text = NULL;
    int rc = pst_pipeline_edit_rollout(s->spec, s->name, rollout, &text, &v->err);
    bool same = rc == 0 && !strcmp(text, s->spec);
    if (rc == 0 && !same)
        rc = judge(v, s, text);
    if (rc == 0 && !same && o->dry_run)
        fputs(text, stdout);
    else if (rc == 0 && !same)
        rc = publish(v, s, text);
    if (rc == 0 && !v->settings.quiet)
        fprintf(stderr, "%s: %s\n", s->name, same ? "nothing changes" : o->dry_run ? "not published" : "published");
    if (rc == 0)
        rc = tell_rests(v, s, text);
    free(text);
    return rc;
}

static void set_choice(json_t *to, const score_rollout_opts *o)
{
    if (o->alias) {
        json_object_set_new(to, "alias", json_string(o->alias));
        json_object_del(to, "version");
    } else if (o->version) {
        json_object_set_new(to, "version", json_integer(o->version));
        json_object_del(to, "alias");
    }
}

/* 5 is written 5 and not 5.0: texts are compared. */
static json_t *number(double x)
{
    return x == (double)(int64_t)x ? json_integer((int64_t)x) : json_real(x);
}

static json_t *section(json_t *of, const char *key)
{
    json_t *there = json_object_get(of, key);
    if (!json_is_object(there)) {
        json_object_set_new(of, key, json_object());
        there = json_object_get(of, key);
    }
    return there;
}

static void set_budget(json_t *canary, const score_rollout_opts *o)
{
    if (!o->errors && !o->disagreement && !o->over)
        return;
    json_t *b = section(canary, "budget");
    if (o->errors)
        json_object_set_new(b, "errors", json_string(o->errors));
    if (o->disagreement)
        json_object_set_new(b, "disagreement", json_string(o->disagreement));
    if (o->over)
        json_object_set_new(b, "over", json_integer(o->over));
}

static int with_rollout(pst_verb_run *v, const pst_pipeline_spec *s, const score_rollout_opts *o, const char *key,
                        void (*set)(json_t *to, const score_rollout_opts *o))
{
    json_t *rollout = NULL;
    if (o->alias && o->version)
        return refuse(v, "give --alias or --model-version, not both");
    int rc = pst_pipeline_rollout(s->spec, s->name, &rollout, &v->err);
    if (rc < 0)
        return rc;
    if (o->off)
        json_object_del(rollout, key);
    else
        set(section(rollout, key), o);
    rc = change(v, s, rollout, o);
    json_decref(rollout);
    return rc;
}

static void set_canary(json_t *to, const score_rollout_opts *o)
{
    set_choice(to, o);
    if (o->percent >= 0)
        json_object_set_new(to, "percent", number(o->percent));
    set_budget(to, o);
}

static void set_shadow(json_t *to, const score_rollout_opts *o)
{
    set_choice(to, o);
    if (o->topic)
        json_object_set_new(to, "topic", json_string(o->topic));
    if (o->tolerance >= 0)
        json_object_set_new(to, "tolerance", number(o->tolerance));
}

int score_rollout_canary(pst_verb_run *v, const pst_pipeline_spec *s, const score_rollout_opts *o)
{
    return with_rollout(v, s, o, "canary", set_canary);
}

int score_rollout_shadow(pst_verb_run *v, const pst_pipeline_spec *s, const score_rollout_opts *o)
{
    return with_rollout(v, s, o, "shadow", set_shadow);
}

/* ---- the alias ------------------------------------------------------------------------------------------------------------- */

typedef struct ends {
    pst_effective_from *at;
    size_t n;
} ends;

static void ends_done(ends *e)
{
    for (size_t i = 0; i < e->n; i++)
        free(e->at[i].topic);
    free(e->at);
}

static int ends_of(pst_verb_run *v, const pst_pipeline *p, ends *e)
{
    int rc = 0;
    for (size_t t = 0; rc == 0 && t < p->n_topics; t++) {
        pst_topic_info info = {0};
        rc = pst_admin_topic(v->client->bus, p->topics[t], &info, 10000, &v->err);
        for (int i = 0; rc == 0 && i < info.partitions; i++) {
            e->at = pst_array_one_more(e->at, e->n, sizeof *e->at);
            e->at[e->n++] = (pst_effective_from){pst_strdup(p->topics[t]), i, info.high[i]};
        }
        pst_topic_info_done(&info);
    }
    return rc;
}

static int move(pst_verb_run *v, const pst_pipeline *p, int version, const char *reason, const score_rollout_opts *o)
{
    ends e = {0};
    int rc = ends_of(v, p, &e);
    if (rc == 0 && !o->dry_run)
        rc = pst_models_set_alias_from(v->client, p->model.name, p->model.alias, version, e.at, e.n, pst_account_name(NULL), reason, NULL,
                                       &v->err);
    if (rc == 0 && !v->settings.quiet)
        printf("%s:%s %s version %d\n", p->model.name, p->model.alias, o->dry_run ? "would be" : "is", version);
    for (size_t i = 0; rc == 0 && i < e.n && o->dry_run && !v->settings.quiet; i++)
        printf("  from %s[%d]@%lld on\n", e.at[i].topic, e.at[i].partition, (long long)e.at[i].offset);
    ends_done(&e);
    return rc;
}

static int needs_alias(pst_verb_run *v, const pst_pipeline *p)
{
    if (p->model.alias && !p->model.version && strcmp(p->model.alias, "latest") != 0)
        return 0;
    return refuse(v, "%.120s: its model follows no alias that could be moved; write model: {name: %.120s, alias: …} and apply it", p->name,
                  p->model.name ? p->model.name : "…");
}

/* Its text parsed, and the topic of models. */
typedef struct desk {
    pst_pipeline *p;
    pst_models *models;
} desk;

static void desk_done(desk *d)
{
    pst_models_free(d->models);
    pst_pipeline_free(d->p);
}

static int desk_open(pst_verb_run *v, const pst_pipeline_spec *s, desk *d)
{
    int rc = pst_pipeline_parse_published(s->spec, strlen(s->spec), s->name, &d->p, &v->err);
    d->models = pst_models_new();
    if (rc == 0)
        rc = needs_alias(v, d->p);
    return rc == 0 ? pst_models_load(d->models, v->client, &v->err) : rc;
}

static int take_off(pst_verb_run *v, const pst_pipeline_spec *s, const score_rollout_opts *o)
{
    score_rollout_opts off = *o;
    off.off = true;
    return score_rollout_canary(v, s, &off);
}

/* Whoever promotes by a timer would make everything of what was stopped for its errors. */
static int refuse_stopped(pst_verb_run *v, const pst_pipeline *p)
{
    char *why = NULL;
    int rc = stopped(v, p, &why);
    if (rc == 0 && why)
        rc = refuse(v,
                    "%.100s: its canary was stopped: %.120s; take it back (penstock pipelines rollback) or change it (penstock pipelines "
                    "canary); penstock models alias moves the alias all the same",
                    p->name, why);
    free(why);
    return rc;
}

int score_rollout_promote(pst_verb_run *v, const pst_pipeline_spec *s, const score_rollout_opts *o)
{
    desk d = {0};
    int rc = desk_open(v, s, &d);
    const pst_pipeline *p = d.p;
    if (rc == 0 && !p->has_canary)
        rc = refuse(v, "%.120s has no canary that could be promoted; penstock pipelines canary %.120s --alias A --percent P begins one",
                    p->name, p->name);
    const pst_model_event *now = rc == 0 ? pst_models_alias(d.models, p->model.name, p->model.alias) : NULL,
                          *next = rc == 0 ? pst_models_resolve(d.models, p->model.name, p->canary.alias, p->canary.version) : NULL;
    if (rc == 0 && !next)
        rc = pst_err_set(&v->err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0, "model %s has no version that its canary's %s means",
                         p->model.name, p->canary.alias ? p->canary.alias : "version");
    bool moves = rc == 0 && (!now || now->version != next->version); /* else it has moved already, and only the canary is to end */
    if (moves)
        rc = refuse_stopped(v, p);
    if (rc == 0 && moves) {
        char *reason = pst_sprintf(PROMOTED "%s%s%s", p->name, o->reason ? ": " : "", o->reason ? o->reason : "");
        rc = move(v, p, next->version, reason, o);
        free(reason);
    }
    desk_done(&d);
    return rc == 0 ? take_off(v, s, o) : rc;
}

static int undo_promotion(pst_verb_run *v, const pst_pipeline_spec *s, const score_rollout_opts *o)
{
    desk d = {0};
    int rc = desk_open(v, s, &d);
    const pst_model_event *now = rc == 0 ? pst_models_alias(d.models, d.p->model.name, d.p->model.alias) : NULL,
                          *before = rc == 0 ? pst_models_alias_back(d.models, d.p->model.name, d.p->model.alias, 1) : NULL;
    bool promoted = now && now->reason && !strncmp(now->reason, PROMOTED, strlen(PROMOTED)) &&
                    !strncmp(now->reason + strlen(PROMOTED), s->name, strlen(s->name)) &&
                    strchr(":", now->reason[strlen(PROMOTED) + strlen(s->name)]);
    if (rc == 0 && !(promoted && before)) {
        if (!v->settings.quiet)
            fprintf(stderr, "%s: nothing changes: the last move of %s:%s is no promotion of this pipeline\n", s->name, d.p->model.name,
                    d.p->model.alias);
    } else if (rc == 0) {
        char *reason = pst_sprintf("promotion of version %d undone%s%s", now->version, o->reason ? ": " : "", o->reason ? o->reason : "");
        rc = move(v, d.p, before->version, reason, o);
        free(reason);
    }
    desk_done(&d);
    return rc;
}

int score_rollout_back(pst_verb_run *v, const pst_pipeline_spec *s, const score_rollout_opts *o)
{
    return o->promotion ? undo_promotion(v, s, o) : take_off(v, s, o);
}

/* ---- what is seen of it ---------------------------------------------------------------------------------------------------- */

static void tell_choice(const telling *t, const char *what, const pst_model_choice *c, FILE *f)
{
    const pst_model_event *v = pst_models_resolve(t->models, c->name, c->alias, c->version);
    fprintf(f, "%s: %s%s%s, ", what, c->name, c->alias ? ":" : "", c->alias ? c->alias : "");
    fprintf(f, v ? "version %d" : "which is not there", v ? v->version : 0);
}

void score_rollout_tell(pst_client *c, const pst_pipeline_spec *s, FILE *f)
{
    telling t = {.c = c, .models = pst_models_new()};
    pst_pipeline *p = NULL;
    pst_err e = {0};
    bool ok = pst_pipeline_parse_published(s->spec, strlen(s->spec), s->name, &p, &e) == 0 && (p->has_canary || p->has_shadow);
    t.p = p;
    if (ok)
        pst_score_report_spec(p, t.spec);
    if (ok && pst_client_scan(c, PST_TOPIC_MODELS, NULL, hear, &t, &e) == 0) {
        tell_choice(&t, "primary", &p->model, f);
        fputc('\n', f);
        if (p->has_canary) {
            tell_choice(&t, "canary", &p->canary, f);
            fprintf(f, ", %g%% of the records\n", t.stop.name ? 0 : p->canary_percent);
        }
        if (t.stop.name)
            fprintf(f, "canary stopped: %s\n", t.stop.reason ? t.stop.reason : "");
        for (size_t i = 0; t.stop.name && i < t.stop.n_effective; i++)
            fprintf(f, "  from %s[%d]@%lld on\n", t.stop.effective[i].topic, t.stop.effective[i].partition,
                    (long long)t.stop.effective[i].offset);
        if (p->has_shadow) {
            tell_choice(&t, "shadow", &p->shadow, f);
            fprintf(f, ", into %s\n", p->shadow_topic);
        }
    }
    if (t.stop.name)
        pst_event_clear(&pst_model_event_type, &t.stop);
    pst_models_free(t.models);
    pst_pipeline_free(p);
}

/* worker → its line, of the newest heartbeat. */
typedef struct drifting {
    pst_client *c;
    const char *pipeline;
    pst_map lines;
} drifting;

static const char *detail(const pst_worker_state *w, const char *key)
{
    for (size_t i = 0; i < w->n_details; i++)
        if (!strcmp(w->details[i].key, key))
            return w->details[i].value;
    return NULL;
}

static int hear_worker(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    drifting *d = arg;
    pst_worker_state w;
    if (!r->value || pst_codec_decode(d->c->codec, &pst_worker_state_type, r->value, r->value_len, r->timestamp_ms, &w, NULL) < 0)
        return 0;
    const char *of = detail(&w, "pipeline"), *drift = detail(&w, "drift");
    if (of && !strcmp(of, d->pipeline)) {
        bool gone = !strcmp(w.state, "stopped") || !drift;
        free(gone ? pst_map_take(&d->lines, w.worker_id) : pst_map_put(&d->lines, w.worker_id, pst_strdup(drift)));
    }
    pst_event_clear(&pst_worker_state_type, &w);
    return 0;
}

void score_drift_tell(pst_client *c, const char *pipeline, FILE *f)
{
    drifting d = {.c = c, .pipeline = pipeline};
    pst_err e = {0};
    if (pst_client_scan(c, PST_TOPIC_WORKERS, NULL, hear_worker, &d, &e) == 0)
        for (size_t i = 0; i < d.lines.n; i++)
            if (d.lines.at[i].key)
                fprintf(f, "drift, %s: %.400s\n", d.lines.at[i].key, (const char *)d.lines.at[i].value);
    pst_map_done(&d.lines, free);
}
