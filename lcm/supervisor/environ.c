/* environ.c - what a learner sees of its surroundings: FfDL's variables (docs/learner.md), the manifest's, and of our own environment
 * only names that carry no secret. No Kafka address and no credential is among them: a learner is the user's code. The built-in learner is
 * our own code and gets the platform's settings by a descriptor (learner.c), not here. */
#include "lcm/supervisor/mpi.h"
#include "lcm/supervisor/run.h"

#include "common/base/array.h"

#include "common/base/json.h"
#include "schemas/task_array.h"

#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const char *const inherited[] = {"PATH",          "HOME",         "USER",      "LOGNAME",         "SHELL",
                                        "LANG",          "LANGUAGE",     "TZ",        "TMPDIR",          "LD_LIBRARY_PATH",
                                        "VIRTUAL_ENV",   "CONDA_PREFIX", "JAVA_HOME", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
                                        "http_proxy",    "https_proxy",  "no_proxy",  "SSL_CERT_FILE",   "SSL_CERT_DIR",
                                        "PIP_INDEX_URL", "NO_COLOR"};
static const char *const inherited_prefixes[] = {"LC_", "CUDA_HOME", "CUDA_PATH", "CUDA_CACHE_", "NCCL_", "NVIDIA_"};

typedef struct env {
    char **at;
    size_t n, cap;
} env;

/* Later wins. value is formatted. */
__attribute__((format(printf, 3, 4))) static void set(env *e, const char *name, const char *fmt, ...)
{
    pst_buf b = {0};
    va_list ap;
    pst_buf_printf(&b, "%s=", name);
    size_t head = b.len;
    va_start(ap, fmt);
    pst_buf_vprintf(&b, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < e->n; i++)
        if (!strncmp(e->at[i], b.data, head)) {
            free(e->at[i]);
            e->at[i] = pst_buf_steal(&b);
            return;
        }
    e->at = pst_array_room(e->at, e->n, &e->cap, sizeof *e->at);
    e->at[e->n++] = pst_buf_steal(&b);
    e->at = pst_array_room(e->at, e->n, &e->cap, sizeof *e->at);
    e->at[e->n] = NULL;
}

/* Proxies and package indexes may carry a password: https://user:secret@host. Such a value stays with us. */
static bool holds_credentials(const char *value)
{
    const char *host = strstr(value, "://");
    return host && memchr(host + 3, '@', strcspn(host + 3, "/"));
}

static void inherit(env *e)
{
    for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++)
        if (getenv(inherited[i]) && !holds_credentials(getenv(inherited[i])))
            set(e, inherited[i], "%s", getenv(inherited[i]));
    for (char **v = environ; *v; v++)
        for (size_t i = 0; i < sizeof inherited_prefixes / sizeof *inherited_prefixes; i++)
            if (!strncmp(*v, inherited_prefixes[i], strlen(inherited_prefixes[i])) && strchr(*v, '=')) {
                char *name = pst_strndup(*v, (size_t)(strchr(*v, '=') - *v));
                set(e, name, "%s", strchr(*v, '=') + 1);
                free(name);
            }
    if (!getenv("PATH"))
        set(e, "PATH", "/usr/local/bin:/usr/bin:/bin");
}

/* FfDL's names, so that its learners run unchanged; the values are those that its pods have. */
static void ffdl(env *e, const sup_run *r)
{
    const pst_rundir_spec *s = &r->spec;
    set(e, "MODEL_DIR", "%s", r->code_dir);
    set(e, "DATA_DIR", "%s", r->data_dir);
    set(e, "RESULT_DIR", "%s", r->result_dir);
    set(e, "RESULT_BUCKET_DIR", "%s", r->result_bucket_dir);
    set(e, "CHECKPOINT_DIR", "%s", r->checkpoint_dir);
    set(e, "LOG_DIR", "%s", r->log_dir);
    set(e, "JOB_STATE_DIR", "%s", r->job_state_dir);
    set(e, "TRAINING_ID", "%s", s->training_id);
    set(e, "TRAINING_JOB", "%s", s->name ? s->name : "");
    char *command = pst_strdup(r->role->command ? r->role->command : "");
    for (char *c = command; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    set(e, "TRAINING_COMMAND", "%s", command);
    free(command);
    set(e, "NUM_LEARNERS", "%d", r->manifest.learners);
    set(e, "LEARNER_ID", "%d", s->learner_id);
    set(e, "LEARNER_NAME_PREFIX", "%s", r->name_prefix);
    set(e, "GPU_COUNT", "%f", (double)s->gpus);
    set(e, "DOWNWARD_API_POD_NAME", "%s-%d", r->name_prefix, r->rank > 0 ? r->rank : 0);
    set(e, "DOWNWARD_API_POD_NAMESPACE", "penstock");
    char *gpu_ids = sup_mpi_gpu_ids(r);
    set(e, "CUDA_VISIBLE_DEVICES", "%s", gpu_ids);
    free(gpu_ids);
    const char *path = getenv("PYTHONPATH");
    set(e, "PYTHONPATH", "%s%s%s", r->code_dir, path && *path ? ":" : "", path ? path : "");
    set(e, "PYTHONUNBUFFERED", "1"); /* its output is a pipe: without this lines and metrics come late */
    if (r->client && *r->client->trace.text) {
        pst_trace step;
        pst_trace_child(&r->client->trace, &step);
        set(e, "TRACEPARENT", "%s", step.text);
    }
    if (r->checkpoint)
        set(e, "PENSTOCK_CHECKPOINT", "%s", r->checkpoint);
    int task = pst_task_index(s->training_id);
    if (task >= 0) {
        set(e, "PENSTOCK_ARRAY_INDEX", "%d", task);
        set(e, "PENSTOCK_ARRAY_ID", "%.*s", (int)(strrchr(s->training_id, '-') - s->training_id), s->training_id);
        set(e, "PENSTOCK_ARRAY_COUNT", "%d", r->manifest.tasks);
    }
    set(e, "PENSTOCK_GENERATION", "%d", s->generation);
    set(e, "PENSTOCK_RUN", "%s/%d/%s", s->training_id, s->generation, s->process);
    pst_process_id id = pst_process_id_of(s->training_id, s->generation, s->process);
    char *mark = pst_rundir_mark(s->state_dir, &id);
    set(e, "PENSTOCK_RUN_DIR", "%s", strchr(mark, '=') + 1); /* by this the LCM finds what a lost supervisor left */
    free(mark);
}

/* Over several nodes Gloo and NCCL look for an interface themselves, by the host's name, which is often one of 127.0.0.0/8. The manifest may say otherwise. */
static void interface(env *e, const char *address)
{
    static const char *const names[] = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"};
    char name[IF_NAMESIZE];
    if (!sup_ports_interface(address, name))
        return; /* translated on the way: only the operator of the network knows */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        set(e, names[i], "%s", name);
}

/* Who the others are, in the words of each framework: PyTorch's env:// (torch.distributed), torchrun's options as variables (PET_…), TensorFlow's. */
static void gang(env *e, const sup_run *r)
{
    const sup_gang *g = &r->gang;
    const pst_member *self = g->self, *master = sup_gang_master(&g->members);
    PST_ASSERT(self);
    int world = sup_gang_world(&g->members);
    set(e, "JOB_DIR", "%s", r->job_state_dir);
    set(e, "PENSTOCK_ROLE", "%s", self->role);
    set(e, "PENSTOCK_ROLE_INDEX", "%d", self->index);
    set(e, "PENSTOCK_ROLE_COUNT", "%d", self->count);
    set(e, "PENSTOCK_PORT", "%d", self->other_port);
    set(e, "PENSTOCK_HOSTFILE", "%s", g->hostfile);
    set(e, "PENSTOCK_HOSTS", "%s", g->hosts);
    set(e, "WORLD_SIZE", "%d", world);
    set(e, "PET_NNODES", "%d", world);
    set(e, "PET_NPROC_PER_NODE", "%d", self->slots);
    if (self->rank >= 0) {
        set(e, "RANK", "%d", self->rank);
        set(e, "LOCAL_RANK", "%d", self->local_rank);
        set(e, "LOCAL_WORLD_SIZE", "%d", self->local_size);
        set(e, "PET_NODE_RANK", "%d", self->rank);
    }
    if (master) {
        set(e, "MASTER_ADDR", "%s", master->address);
        set(e, "MASTER_PORT", "%d", master->master_port);
        set(e, "PET_MASTER_ADDR", "%s", master->address);
        set(e, "PET_MASTER_PORT", "%d", master->master_port);
    }
    if (r->address || r->spec.address)
        interface(e, g->ports.address);
    char *config = sup_gang_tf_config(&g->members, self);
    set(e, "TF_CONFIG", "%s", config);
    free(config);
}

/* What mpirun is to do otherwise than by itself: its ranks have the job's grace time after SIGTERM, not a second; messages are not copied out of each
 * other's memory, which containers forbid, and which it would complain of in each rank's output. The manifest may say otherwise. */
static void open_mpi(env *e, const sup_run *r)
{
    int seconds = (r->spec.grace_ms + 999) / 1000;
    set(e, "OMPI_MCA_odls_base_sigkill_timeout", "%d", seconds > 1 ? seconds : 1);
    set(e, "OMPI_MCA_btl_vader_single_copy_mechanism", "none");
}

static bool is_one_of(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, list[i]))
            return true;
    return false;
}

static bool is_ours(const char *name, bool alone)
{
    static const char *const fixed[] = {"MODEL_DIR",     "DATA_DIR",          "RESULT_DIR",          "CHECKPOINT_DIR",
                                        "LOG_DIR",       "TRAINING_ID",       "LEARNER_ID",          "NUM_LEARNERS",
                                        "JOB_STATE_DIR", "RESULT_BUCKET_DIR", "LEARNER_NAME_PREFIX", "JOB_DIR"};
    static const char *const gang_s[] = {"RANK",         "WORLD_SIZE", "LOCAL_RANK",      "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                                         "MASTER_PORT",  "TF_CONFIG",  "PET_MASTER_ADDR", "PET_MASTER_PORT",  "PET_NNODES",
                                         "PET_NODE_RANK"};
    return is_one_of(name, fixed, sizeof fixed / sizeof *fixed) || (!alone && is_one_of(name, gang_s, sizeof gang_s / sizeof *gang_s)) ||
           !strncmp(name, "PENSTOCK_", 9);
}

char **sup_run_environ(const sup_run *r)
{
    env e = {0};
    inherit(&e);
    ffdl(&e, r);
    gang(&e, r);
    if (sup_mpi_launches(r))
        open_mpi(&e, r);
    if (r->manifest.native && r->settings)
        set(&e, "PENSTOCK_HANDOVER", "stdin");
    const char *key;
    json_t *value;
    bool alone = pst_manifest_processes(&r->manifest) == 1; /* it may have a gang of its own making, of several jobs */
    json_object_foreach(r->role->env, key, value) if (json_is_string(value) && *key && !strchr(key, '=') && !is_ours(key, alone))
        set(&e, key, "%s", json_string_value(value));
    return e.at;
}

void sup_run_environ_free(char **env_)
{
    for (char **v = env_; v && *v; v++)
        free(*v);
    free(env_);
}

char *sup_run_command_text(const char *command)
{
    pst_buf b = {0};
    for (const char *p = command; *p; p++) {
        const char *next = p + 1 + strspn(p + 1, " \t");
        if (*p == '\n' && *next == '-') {
            pst_buf_addc(&b, ' ');
            p = next - 1;
        } else if (*p != '\r') {
            pst_buf_addc(&b, *p);
        }
    }
    return pst_buf_steal(&b);
}
