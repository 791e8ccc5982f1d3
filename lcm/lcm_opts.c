/* lcm_opts.c - the options and their checks: what cannot be had on this computer is refused here, where a person reads it, and not by every job. */
#include "lcm/lcm_opts.h"

#include "common/base/confine.h"
#include "lcm/launchers.h"
#include "lcm/node_id.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const pst_opt opts[] = {
    {"site", 0, PST_OPT_STR, offsetof(lcm_opts, site), "NAME", "local", "the site that this node belongs to"},
    {"node", 0, PST_OPT_STR, offsetof(lcm_opts, node), "NAME", NULL,
     "name of this node at its first start; then kept in the state folder [the host's name and a random part]"},
    {"advertise", 0, PST_OPT_STR, offsetof(lcm_opts, advertise), "ADDRESS", NULL,
     "numeric address by which other nodes reach processes here, for gangs over several nodes [that of the default route]"},
    {"launcher", 0, PST_OPT_STR, offsetof(lcm_opts, launcher), "NAME", "local",
     "how processes are started; local: on this computer; kubernetes: as pods of a cluster (docs/kubernetes.md)"},
    {"kubeconfig", 0, PST_OPT_STR, offsetof(lcm_opts, kube.kubeconfig), "FILE", NULL,
     "kubernetes: how its API server is reached [KUBECONFIG; in a pod, its service account]"},
    {"namespace", 0, PST_OPT_STR, offsetof(lcm_opts, kube.namespace_), "NAME", NULL,
     "kubernetes: where pods are made [that of the kubeconfig's context, of the pod, or default]"},
    {"kubernetes-server", 0, PST_OPT_STR, offsetof(lcm_opts, kube.server), "URL", NULL,
     "kubernetes: the API server, in place of a kubeconfig"},
    {"kubernetes-token-file", 0, PST_OPT_STR, offsetof(lcm_opts, kube.token_file), "FILE", NULL,
     "kubernetes: a token, read anew for each request"},
    {"kubernetes-ca", 0, PST_OPT_STR, offsetof(lcm_opts, kube.ca_file), "FILE", NULL, "kubernetes: who vouches for the API server, PEM"},
    {"volume-claim", 0, PST_OPT_STR, offsetof(lcm_opts, kube.claim), "NAME", "penstock-state",
     "kubernetes: the claim of the volume that is mounted here at the state folder; ReadWriteMany"},
    {"image", 0, PST_OPT_STR, offsetof(lcm_opts, kube.image), "IMAGE", "penstock:" PST_VERSION,
     "kubernetes: the container image of penstock itself, from which supervisors come and native jobs run"},
    {"images", 0, PST_OPT_STR, offsetof(lcm_opts, kube.images), "NAME=IMAGE,…", NULL,
     "kubernetes: images of frameworks, before FfDL's; without a tag the framework's version is it"},
    {"gpu-resource", 0, PST_OPT_STR, offsetof(lcm_opts, kube.gpu_resource), "NAME", "nvidia.com/gpu",
     "kubernetes: what a GPU is called there"},
    {"gpu-label", 0, PST_OPT_STR, offsetof(lcm_opts, kube.gpu_label), "NAME", "nvidia.com/gpu.product",
     "kubernetes: the label of nodes that tells the type of their GPUs"},
    {"offer-cpus", 0, PST_OPT_DOUBLE, offsetof(lcm_opts, kube.cpus), "N 0..10000000", "0",
     "kubernetes: processors that jobs may have in sum; 0 = those of the cluster's nodes"},
    {"offer-memory", 0, PST_OPT_BYTES, offsetof(lcm_opts, kube.memory_bytes), "SIZE", "0", "kubernetes: the same for memory"},
    {"offer-gpus", 0, PST_OPT_STR, offsetof(lcm_opts, kube.gpus), "TYPE=N,…", NULL, "kubernetes: the same for GPUs, by type; '' = none"},
    {"isolation", 0, PST_OPT_STR, offsetof(lcm_opts, isolation), "LEVEL", NULL,
     "the weakest isolation that jobs may have here: none, user or sandbox. A job that asks for less is refused; native jobs, which run "
     "the platform's own program, have user at most [none]"},
    {"stores", 0, PST_OPT_STR, offsetof(lcm_opts, stores), "HOSTS", NULL,
     "S3 servers that jobs may use from here, comma-separated: host, host:port, *.domain [any]"},
    {"overcommit", 0, PST_OPT_DOUBLE, offsetof(lcm_opts, overcommit), "FACTOR", "1", "offer this many times the processors that there are"},
    {"keep-ended", 0, PST_OPT_SPAN, offsetof(lcm_opts, keep_us), "SPAN", "7d",
     "how long folders of ended generations stay (code, data, supervisors' logs); 0s = for ever. Results and "
     "checkpoints stay until their job is deleted"},
    {"keep-ended-bytes", 0, PST_OPT_BYTES, offsetof(lcm_opts, keep_bytes), "SIZE", "0",
     "of those, the oldest go first beyond this much in sum; 0 = no limit"},
    {"port", 0, PST_OPT_INT, offsetof(lcm_opts, port), "PORT 0..65535", "0", "serve /health and /metrics on 127.0.0.1:PORT; 0 = not"},
    {"print-fsm", 0, PST_OPT_BOOL, offsetof(lcm_opts, print_fsm), NULL, NULL, "print the table of process states as Markdown and exit"}};
const pst_usage lcm_usage = {.verb = "lcm",
                             .args = "",
                             .summary = "Deploy, halt and end the processes of jobs on this computer, as the Trainer commands.",
                             .text = "Consumes jobs.commands, produces jobs.reports and a heartbeat on workers. Every LCM is a node of "
                                     "its site with an id of its own, kept in the state folder; a second one in the same folder waits "
                                     "until the first has gone. SIGTERM ends the LCM alone: learners go on and are adopted at the next "
                                     "start. SIGUSR2 ends every process of the node first.",
                             .examples = "penstock lcm\npenstock lcm --site rack7 --node gpu3 --overcommit 2\npenstock lcm --isolation "
                                         "sandbox\npenstock lcm --launcher kubernetes --kubeconfig ~/.kube/config --namespace jobs",
                             .opts = opts,
                             .n_opts = sizeof opts / sizeof *opts};

static int refuse_launcher(const char *name, pst_err *err)
{
    char *names = lcm_launcher_names();
    int rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "there is no launcher '%s': --launcher is one of %s", name, names);
    free(names);
    return rc;
}

int lcm_opts_check(const lcm_opts *o, pst_isolation *ret_floor, pst_err *err)
{
    if (!pst_rundir_name_ok(o->site))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "'%s' is no site name: letters, digits, . _ -", o->site);
    if (o->node && (!pst_rundir_name_ok(o->node) || strlen(o->node) > LCM_NODE_NAME_MAX))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "'%s' is no node name: letters, digits, . _ -, at most %d",
                           o->node, LCM_NODE_NAME_MAX);
    if (!lcm_launcher_find(o->launcher))
        return refuse_launcher(o->launcher, err);
    if (!(o->overcommit > 0 && o->overcommit <= 1000))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--overcommit must be above 0 and at most 1000");
    return o->isolation ? pst_confine_floor(o->isolation, ret_floor, err) : 0;
}
