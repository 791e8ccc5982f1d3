/* lcm_main.c - penstock lcm: config, wire, loop, drain. SIGTERM ends the LCM alone, because a new one must be able to take its place while jobs
 * run: learners go on and are adopted at the next start. SIGUSR2 is for whoever means the jobs, too. */
#include "common/base/confine.h"
#include "common/base/dump.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "lcm/lcm.h"
#include "lcm/launchers.h"
#include "lcm/lcm_shell.h"
#include "lcm/process_fsm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUND_MS = 100 };

typedef struct lcm_opts {
    const char *site, *node, *launcher, *isolation;
    double overcommit;
    int64_t keep_us, keep_bytes;
    bool print_fsm;
} lcm_opts;

static const pst_opt opts[] = {
    {"site", 0, PST_OPT_STR, offsetof(lcm_opts, site), "NAME", "local", "the site that this node belongs to"},
    {"node", 0, PST_OPT_STR, offsetof(lcm_opts, node), "NAME", NULL,
     "name of this node at its first start; then kept in the state folder [the host's name and a random part]"},
    {"launcher", 0, PST_OPT_STR, offsetof(lcm_opts, launcher), "NAME", "local", "how processes are started: local = on this computer"},
    {"isolation", 0, PST_OPT_STR, offsetof(lcm_opts, isolation), "LEVEL", NULL,
     "the weakest isolation that jobs may have here: none, user or sandbox. A job that asks for less is refused; native jobs, which run "
     "the "
     "platform's own program, have user at most [none]"},
    {"overcommit", 0, PST_OPT_DOUBLE, offsetof(lcm_opts, overcommit), "FACTOR", "1", "offer this many times the processors that there are"},
    {"keep-ended", 0, PST_OPT_SPAN, offsetof(lcm_opts, keep_us), "SPAN", "7d",
     "how long folders of ended generations stay (code, data, supervisors' logs); 0s = for ever. Results and "
     "checkpoints stay until their job is deleted"},
    {"keep-ended-bytes", 0, PST_OPT_BYTES, offsetof(lcm_opts, keep_bytes), "SIZE", "0",
     "of those, the oldest go first beyond this much in sum; 0 = no limit"},
    {"print-fsm", 0, PST_OPT_BOOL, offsetof(lcm_opts, print_fsm), NULL, NULL, "print the table of process states as Markdown and exit"}};
static const pst_usage usage = {.verb = "lcm",
                                .args = "",
                                .summary = "Deploy, halt and end the processes of jobs on this computer, as the Trainer commands.",
                                .text = "Consumes jobs.commands, produces jobs.reports and a heartbeat on workers. Every LCM is a node of "
                                        "its site with an id of its own, kept in the state folder; a second one in the same folder waits "
                                        "until the first has gone. SIGTERM ends the LCM alone: learners go on and are adopted at the next "
                                        "start. SIGUSR2 ends every process of the node first.",
                                .examples =
                                    "penstock lcm\npenstock lcm --site rack7 --node gpu3 --overcommit 2\npenstock lcm --isolation sandbox",
                                .opts = opts,
                                .n_opts = sizeof opts / sizeof *opts};

static volatile sig_atomic_t site_stop;

static void on_usr2(int sig)
{
    site_stop = 1;
    pst_stop_request(); /* waits end */
}

typedef struct lcm {
    lcm_opts opts;
    pst_isolation floor;
    pst_settings settings;
    char *state_dir, **environ;
    pst_client *client;
    lcm_node_id node;
    lcm_shell *shell;
} lcm;

/* ---- config ------------------------------------------------------------------------------------------------------------------- */

static int refuse_launcher(const char *name, pst_err *err)
{
    char *names = lcm_launcher_names();
    int rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "there is no launcher '%s': --launcher is one of %s", name, names);
    free(names);
    return rc;
}

/* Of a level that this host cannot give every job would fail: that is for whoever starts the LCM to hear. */
static int check_isolation(const char *word, pst_isolation *ret_floor, pst_err *err)
{
    if (!word)
        return 0;
    if (pst_isolation_parse(word, ret_floor) < 0)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--isolation must be none, user or sandbox, found '%.40s'", word);
    unsigned can = *ret_floor == PST_ISOLATION_NONE ? 0 : pst_confine_probe();
    if ((*ret_floor == PST_ISOLATION_USER && !(can & PST_CAN_NO_NEW_PRIVS)) ||
        (*ret_floor == PST_ISOLATION_SANDBOX && !(can & PST_CAN_SANDBOX)))
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "config", 0,
                           "--isolation %s: this host does not give it; `penstock doctor` tells what it gives, and lacks", word);
    return 0;
}

static int check(const lcm_opts *o, pst_err *err)
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
    return 0;
}

static int configure(lcm *l, int argc, char **argv, pst_err *err)
{
    char **args = NULL;
    int n_args = 0, rc = pst_opt_parse(&usage, argc, argv, &l->opts, &l->settings, &args, &n_args, err);
    if (!rc)
        rc = check(&l->opts, err);
    if (!rc)
        rc = check_isolation(l->opts.isolation, &l->floor, err);
    free(args);
    return rc;
}

static int print_fsm(void)
{
    pst_buf table = {0};
    lcm_fsm_markdown(&table);
    fputs(table.data, stdout);
    pst_buf_done(&table);
    return 0;
}

/* ---- wire --------------------------------------------------------------------------------------------------------------------- */

/* The lock comes before all that another LCM of this folder would share: its node, its run directories, its group. */
static int wire(lcm *l, pst_err *err)
{
    const lcm_opts *o = &l->opts;
    int rc = pst_fs_mkdirs(l->settings.state_dir.value, 0700, err);
    if (!rc && !(l->state_dir = realpath(l->settings.state_dir.value, NULL)))
        rc = pst_err_sys(err, errno, "cannot use the state folder %s", l->settings.state_dir.value);
    if (!rc)
        rc = lcm_node_id_lock(l->state_dir, o->site, err);
    if (!rc)
        rc = pst_client_open(&l->settings, "penstock-lcm", &l->client, err);
    if (!rc)
        rc = lcm_node_id_open(l->state_dir, o->site, o->node, &l->node, err);
    if (rc < 0)
        return rc;
    l->environ = pst_settings_environ(&l->settings);
    lcm_shell_conf conf = {.client = l->client,
                           .site = o->site,
                           .node = &l->node,
                           .state_dir = l->state_dir,
                           .launcher = lcm_launcher_find(o->launcher),
                           .environ = (const char *const *)l->environ,
                           .overcommit = o->overcommit,
                           .floor = l->floor,
                           .keep_ended_us = o->keep_us,
                           .keep_ended_bytes = o->keep_bytes,
                           .at_least_once = l->settings.embedded};
    rc = lcm_shell_open(&conf, &l->shell, err);
    return rc ? rc : lcm_shell_connect(l->shell, err);
}

/* ---- loop, drain -------------------------------------------------------------------------------------------------------------- */

static int loop(lcm *l, pst_err *err)
{
    pst_dump *dump = NULL;
    int rc = pst_dump_new("lcm", lcm_shell_dump, l->shell, &dump, err);
    pst_log(PST_LOG_INFO, "lcm", "event=ready site=%s node=%s epoch=%lld", l->opts.site, l->node.name, (long long)l->node.epoch);
    while (!rc && !pst_stop_requested()) {
        pst_dump_serve(dump);
        rc = lcm_shell_round(l->shell, ROUND_MS, err);
    }
    pst_dump_free(dump);
    return rc;
}

/* Whatever ended the loop: the site is stopped if that was asked for and there is a shell that can; then all is closed. */
static int drain(lcm *l, int rc, pst_err *err)
{
    if (l->shell && site_stop && (!rc || rc == PST_ESTOPPED)) {
        pst_stop_reset(); /* the request was ours; a SIGTERM from now on gives up waiting */
        pst_err_clear(err);
        pst_log(PST_LOG_INFO, "lcm", "event=stopping_site site=%s", l->opts.site);
        rc = lcm_shell_stop_site(l->shell, err);
    }
    if (rc < 0 && rc != PST_ESTOPPED)
        pst_log_err("lcm", err);
    lcm_shell_close(l->shell);
    lcm_node_id_done(&l->node);
    for (char **v = l->environ; v && *v; v++)
        free(*v);
    free(l->environ);
    pst_client_close(l->client);
    pst_settings_done(&l->settings);
    free(l->state_dir);
    return rc < 0 && rc != PST_ESTOPPED ? pst_err_exit(err) : 0;
}

static int lcm_run(int argc, char **argv)
{
    lcm l = {0};
    pst_err err = {0};
    int rc = configure(&l, argc, argv, &err);
    if (rc == 1)
        return 0;
    if (rc < 0) {
        pst_say_err("lcm", &err);
        return pst_err_exit(&err);
    }
    if (l.opts.print_fsm) {
        pst_settings_done(&l.settings);
        return print_fsm();
    }
    pst_stop_install();
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_usr2}, NULL);
    rc = wire(&l, &err);
    if (!rc)
        rc = loop(&l, &err);
    return drain(&l, rc, &err);
}

const pst_verb pst_lcm_verb = {"lcm", "run the processes of jobs on this computer", "services", lcm_run, PST_USAGES(&usage)};
