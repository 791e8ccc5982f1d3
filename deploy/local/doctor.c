/* doctor.c - `penstock doctor`: what works from here, what does not, and the one command or sentence that cures it.
 * Each check is a function that answers OK, WARN or FAIL; nothing is changed on the computer. */
#include "common/base/cgroup.h"
#include "common/base/clock.h"
#include "common/base/confine.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/program.h"
#include "common/base/term.h"
#include "common/objects/objects.h"
#include "common/platform/client.h"
#include "common/platform/codec.h"
#include "common/platform/verb.h"
#include "common/store/store.h"
#include "deploy/local/local.h"
#include "deploy/local/services.h"
#include "deploy/local/up.h"
#include "engine/cuda/devices.h"
#include "engine/ort/ort_find.h"
#include "engine/penstock_engine.h"
#include "common/bus/bus.h"
#include "common/registry/registry.h"
#include "schemas/avro.h"
#include "schemas/events.h"
#include "schemas/topics.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

typedef enum { OK, WARN, FAIL } verdict;

typedef struct doctor {
    pst_client *c;
    const pst_settings *s;
    bool broker;
    int worst_exit;
    json_t *json; /* array, or NULL */
} doctor;

static void tell(doctor *d, verdict v, const char *what, const char *found, const char *cure)
{
    static const char *const words[] = {"ok", "warn", "FAIL"};
    static const int tints[] = {32, 33, 31};
    if (d->json) {
        json_array_append_new(
            d->json, json_pack("{s:s, s:s, s:s, s:s}", "check", what, "verdict", words[v], "found", found, "cure", cure ? cure : ""));
        return;
    }
    printf("  %s%-4s%s  %-12s %s\n", d->s->color ? pst_tint(tints[v]) : "", words[v], d->s->color ? pst_tint(0) : "", what, found);
    if (v != OK && cure && *cure)
        printf("        %-12s → %s\n", "", cure);
}

static void check_client(doctor *d)
{
    pst_err err = {0};
    if (pst_bus_open(&err) < 0) {
        tell(d, FAIL, "kafka client", err.text, NULL);
        d->worst_exit = pst_err_exit(&err);
        return;
    }
    const char *warning = pst_bus_conf_warning(d->c->bus);
    tell(d, warning ? WARN : OK, "kafka client", pst_bus_version(), warning);
}

static void check_broker(doctor *d)
{
    char *cluster = NULL, found[600];
    int brokers = 0;
    pst_err err = {0};
    if (pst_admin_ping(d->c->bus, 5000, &cluster, &brokers, &err) < 0) {
        tell(d, FAIL, "broker", err.text,
             err.code == PST_EAUTH ? "check sasl.*, ssl.* in -X or -F (penstock config explain)"
                                   : "penstock up --kafka starts one; -b HOST:PORT names yours");
        d->worst_exit = pst_err_exit(&err);
        return;
    }
    d->broker = true;
    snprintf(found, sizeof found, "%s answers, %d broker%s, cluster %s%s", d->s->bootstrap.value, brokers, brokers == 1 ? "" : "s",
             cluster ? cluster : "?", d->s->embedded ? " (in memory, keeps nothing)" : "");
    tell(d, d->s->embedded ? WARN : OK, "broker", found, "use a real Kafka for anything that must last: penstock up --kafka");
    free(cluster);
}

static void check_topics(doctor *d)
{
    if (!d->broker)
        return;
    pst_topic_info *have = NULL;
    size_t n = 0;
    pst_err err = {0};
    if (pst_admin_list(d->c->bus, &have, &n, 5000, &err) < 0) {
        tell(d, FAIL, "topics", err.text, "the user may lack Describe on the topics");
        return;
    }
    pst_buf missing = {0};
    for (int t = 0; t < PST_TOPIC_COUNT; t++) {
        bool there = false;
        for (size_t i = 0; i < n && !there; i++)
            there = !strcmp(have[i].name, d->c->topics[t]);
        if (!there)
            pst_buf_printf(&missing, "%s%s", missing.len ? " " : "", d->c->topics[t]);
    }
    if (missing.len)
        tell(d, WARN, "topics", missing.data, "missing; penstock topics create makes them (penstock up does too)");
    else
        tell(d, OK, "topics", "all of the platform's topics are there", NULL);
    pst_buf_done(&missing);
    for (size_t i = 0; i < n; i++)
        pst_topic_info_done(&have[i]);
    free(have);
}

static void check_registry(doctor *d)
{
    pst_err err = {0};
    char found[600];
    if (pst_registry_ping(d->c->registry, &err) < 0) {
        tell(d, FAIL, "registry", err.text, "penstock up starts the built-in one; --registry URL names yours");
        if (!d->worst_exit)
            d->worst_exit = 5;
        return;
    }
    snprintf(found, sizeof found, "%s answers", d->s->registry.value);
    tell(d, OK, "registry", found, NULL);
}

static void check_store(doctor *d)
{
    pst_store *store = NULL;
    pst_err err = {0};
    int rc = pst_store_open(pst_setting_full(&d->s->store), true, &store, &err);
    if (rc == PST_ENOTFOUND)
        tell(d, WARN, "store", "no database yet", "the trainer makes it at its first start");
    else if (rc < 0)
        tell(d, FAIL, "store", err.text, "--store sqlite:PATH or mongodb://HOST/DATABASE");
    else
        tell(d, OK, "store", d->s->store.value, NULL);
    pst_store_close(store);
}

static void check_objects(doctor *d)
{
    pst_err err = {0};
    const char *url = d->s->objects.value;
    if (pst_objects_probe(url, &err) < 0)
        tell(d, FAIL, "objects", err.text, "--objects s3://BUCKET/PREFIX; docs/operations.md says what the environment has to have");
    else
        tell(d, OK, "objects", url, NULL);
}

static void check_disk(doctor *d)
{
    struct statvfs v;
    char found[300];
    char *dir = pst_strdup(d->s->state_dir.value);
    while (statvfs(dir, &v) < 0 && strlen(dir) > 1) {
        char *slash = strrchr(dir, '/');
        if (!slash || slash == dir)
            break;
        *slash = 0;
    }
    if (!statvfs(dir, &v)) {
        double gib = (double)v.f_bavail * (double)v.f_frsize / (1 << 30);
        snprintf(found, sizeof found, "%.1f GiB free for %s", gib, d->s->state_dir.value);
        verdict v_disk = OK;
        if (gib < 5)
            v_disk = gib < 1 ? FAIL : WARN;
        tell(d, v_disk, "disk", found, "make room, or --state-dir DIR on another disk");
    }
    free(dir);
}

static void check_processor(doctor *d)
{
    char found[200];
    snprintf(found, sizeof found, "%ld CPUs, kernels for %s", sysconf(_SC_NPROCESSORS_ONLN), pst_engine_isa());
    tell(d, OK, "processor", found, NULL);
    if (pst_engine_warning())
        tell(d, WARN, "kernels", pst_engine_warning(), "models run right but slower; report it with the processor's name");
}

/* Its absence is no fault, and neither is what it lacks: models run on the CPU. */
static void check_gpu(doctor *d)
{
    char found[512], *to = found;
    pst_cuda_devices all;
    pst_cuda_devices_find(&all);
    const char *end = found + sizeof found;
    for (int i = 0; i < all.n && to < end; i++)
        to += snprintf(to, (size_t)(end - to), "cuda:%d %.40s, ", all.list[i].number, all.list[i].name);
    if (to < end)
        snprintf(to, (size_t)(end - to), "%s; %s run on the CPU",
                 *all.why ? all.why : "usable for models of one tree ensemble or of dense layers", *all.why ? "models" : "others");
    tell(d, OK, "gpu", found, NULL);
}

/* Wanted only by models with operators that the engine does not cover: its absence is no fault. */
static void check_onnxruntime(doctor *d)
{
    const char *set = getenv("PENSTOCK_ONNXRUNTIME");
    char found[512];
    pst_err err = {0};
    if (pst_ort_find(found, sizeof found, &err) == 0)
        tell(d, OK, "onnxruntime", found, NULL);
    else if (set && *set && strcmp(set, "off") != 0)
        tell(d, WARN, "onnxruntime", err.text, "set PENSTOCK_ONNXRUNTIME to a libonnxruntime.so of 1.11 or later, or unset it");
    else
        tell(d, OK, "onnxruntime", set && *set ? "off" : "none (models of the engine's own operators do without)", NULL);
}

static void check_java(doctor *d)
{
    char *script = local_kafka_script();
    bool java = system("command -v java >/dev/null 2>&1") == 0, mvn = system("command -v mvn >/dev/null 2>&1") == 0;
    if (!script)
        tell(d, WARN, "own kafka", "the script deploy/kafka/kafka is not beside this program",
             "set PENSTOCK_KAFKA_SCRIPT, or use your own broker");
    else if (!java || !mvn)
        tell(d, WARN, "own kafka", java ? "mvn is missing" : "java is missing",
             "apt install openjdk-17-jre-headless maven (only for up --kafka)");
    else
        tell(d, OK, "own kafka", "java and mvn are there: up --kafka works", NULL);
    free(script);
}

/* What a job on this computer is kept from, and by what (common/base/confine.h, cgroup.h). */
static void check_isolation(doctor *d)
{
    char words[300], groups[200] = "", found[700], name[64];
    unsigned can = pst_confine_probe();
    pst_cgroup g;
    pst_confine_words(can, words, sizeof words);
    snprintf(name, sizeof name, "penstock-doctor-%d", (int)getpid());
    pst_cgroup_make(name, &g);
    pst_cgroup_close(&g);
    pst_cgroup_remove(&g);
    snprintf(groups, sizeof groups, "%s%s%s%s", g.have & PST_CGROUP_MEMORY ? " memory" : "",
             g.have & PST_CGROUP_PROCESSES ? " processes" : "", g.have & PST_CGROUP_CPUS ? " cpus" : "",
             g.have & PST_CGROUP_KILL ? " a certain end" : "");
    snprintf(found, sizeof found, "%s: %s; control groups:%s",
             can & PST_CAN_SANDBOX        ? "user, sandbox"
             : can & PST_CAN_NO_NEW_PRIVS ? "user"
                                          : "none",
             *words ? words : "nothing", *groups ? groups : " none (limits are looked at by the supervisor)");
    unsigned all = PST_CAN_NO_NEW_PRIVS | PST_CAN_LANDLOCK | PST_CAN_MOUNTS;
    tell(d, (can & all) == all ? OK : WARN, "isolation", found,
         "a job here can read more than its own folders; run only your own, or allow Landlock and user namespaces");
    if (!(can & PST_CAN_HOSTS))
        tell(d, WARN, "gangs", "a job's learners cannot have an /etc/hosts of their own: FfDL's names of learners do not resolve in them",
             "use TF_CONFIG, MASTER_ADDR or the file PENSTOCK_HOSTS, or allow user namespaces (sysctl user.max_user_namespaces)");
    if (geteuid() == 0)
        tell(d, WARN, "user",
             "the platform runs as root, and so does each job that asks for no sandbox; it writes its own and temporary folders",
             "run `penstock up` as a user of its own");
}

/* Commands of jobs are written for bash, as FfDL's learners have it. */
static void check_shell(doctor *d)
{
    const char *sh = pst_program_shell("");
    tell(d, strstr(sh, "bash") ? OK : WARN, "shell", sh, "jobs' commands run by sh here, and what only bash knows fails: apt install bash");
}

typedef struct floors {
    pst_client *c;
    char host[256];
    pst_map allowed; /* by the worker's key: what each LCM of this computer allows, as text */
} floors;

static int take_floor(void *arg, const char *key, const pst_record *r, pst_err *err)
{
    floors *f = arg;
    pst_worker_state w = {0};
    int rc = r->value ? pst_codec_decode(f->c->codec, &pst_worker_state_type, r->value, r->value_len, r->timestamp_ms, &w, err) : 0;
    if (rc < 0 && err->cls == PST_CLASS_RETRY)
        return rc;
    bool runs = !rc && r->value && !strcmp(w.kind, "lcm") && !strcmp(w.host, f->host) && strcmp(w.state, "stopped") != 0 &&
                strcmp(w.state, "lost") != 0;
    if (runs) {
        const char *floor = pst_str_map_get(w.details, w.n_details, PST_ISOLATION_DETAIL);
        const char *node = *w.node ? w.node : w.worker_id;
        free(pst_map_put(&f->allowed, key, pst_sprintf("%s%s on node %s", floor ? floor : "any isolation", floor ? " or more" : "", node)));
    } else if (!rc) { /* what others write there says nothing of a node */
        free(pst_map_take(&f->allowed, key));
    }
    if (!rc && r->value)
        pst_event_clear(&pst_worker_state_type, &w);
    pst_err_clear(err);
    return 0;
}

/* The operator's floor (`penstock lcm --isolation`), as this computer's LCMs publish it in their heartbeats. */
static void check_floor(doctor *d)
{
    floors f = {.c = d->c};
    pst_buf found = {0};
    pst_err err = {0};
    gethostname(f.host, sizeof f.host - 1);
    if (d->broker && pst_client_scan(d->c, PST_TOPIC_WORKERS, NULL, take_floor, &f, &err) == 0)
        for (size_t i = 0; i < f.allowed.n; i++)
            if (f.allowed.at[i].key)
                pst_buf_printf(&found, "%s%s", found.len ? ", " : "", (const char *)f.allowed.at[i].value);
    if (found.len)
        tell(d, OK, "jobs have", found.data, NULL);
    pst_buf_done(&found);
    pst_map_done(&f.allowed, free);
}

static void check_clock(doctor *d)
{
    if (!d->broker || d->s->embedded)
        return;
    /* The broker stamps nothing of ours by default; its clock shows in the answer to "which offset at this time". What matters is ours. */
    int64_t now = pst_now_us();
    if (now < 1700000000LL * 1000000)
        tell(d, FAIL, "clock", "this computer's clock is before 2023", "set it (timedatectl set-ntp true): times of events come from it");
}

static const pst_usage doctor_usage = {"doctor",
                                       "",
                                       "Check everything penstock needs from here, and name the cure for what is missing.",
                                       NULL,
                                       "penstock doctor\npenstock doctor -F client.properties --json",
                                       NULL,
                                       0,
                                       false};

/* Checks go on after one that failed: each says by itself what is wrong. The worst decides the exit status. */
static int doctor_run(int argc, char **argv)
{
    pst_verb_run v;
    int none = 0, status = pst_verb_begin(&v, &doctor_usage, argc, argv, &none, 0, 0);
    if (status >= 0)
        return status;
    doctor d = {.c = v.client, .s = &v.settings, .json = v.settings.json ? json_array() : NULL};
    void (*const checks[])(doctor *) = {check_client,  check_broker, check_topics,    check_registry, check_store,
                                        check_objects, check_disk,   check_processor, check_gpu,      check_onnxruntime,
                                        check_java,    check_clock,  check_isolation, check_shell,    check_floor};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        checks[i](&d);
    if (d.json) {
        pst_json_print(stdout, d.json);
        json_decref(d.json);
    }
    pst_verb_end(&v, 0);
    return d.worst_exit;
}

const pst_verb pst_doctor_verb = {"doctor", "what works from here, and the cure for what does not", "this computer", doctor_run,
                                  PST_USAGES(&doctor_usage)};
