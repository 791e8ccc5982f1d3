/* lcm_main.c - penstock lcm: config, wire, loop, drain. SIGTERM ends the LCM alone, because a new one must be able to take its place while jobs
 * run: learners go on and are adopted at the next start. SIGUSR2 is for whoever means the jobs, too. */
#include "common/base/dump.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/base/stop.h"
#include "common/objects/objects.h"
#include "common/platform/verb.h"
#include "lcm/advertise.h"
#include "lcm/lcm.h"
#include "lcm/launchers.h"
#include "lcm/lcm_metrics.h"
#include "lcm/lcm_opts.h"
#include "lcm/lcm_shell.h"
#include "lcm/process_fsm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUND_MS = 100 };

static volatile sig_atomic_t site_stop;

static void on_usr2(int sig)
{
    site_stop = 1;
    pst_stop_request(); /* waits end */
}

typedef struct lcm {
    pst_verb_run verb;
    lcm_opts opts;
    pst_isolation floor;
    char *state_dir, **environ;
    lcm_node_id node;
    char address[LCM_ADDRESS_MAX];
    lcm_shell *shell;
} lcm;

static int print_fsm(void)
{
    pst_buf table = {0};
    lcm_fsm_markdown(&table);
    fputs(table.data, stdout);
    pst_buf_done(&table);
    return 0;
}

/* ---- wire --------------------------------------------------------------------------------------------------------------------- */

/* The supervisors use it, each for its own; what is wrong with it is said here once, and before a job meets it. */
static void check_objects(const pst_settings *s)
{
    pst_err err = {0};
    if (pst_objects_probe(s->objects.value, &err) < 0)
        pst_log_err("lcm", &err);
}

/* The lock comes before all that another LCM of this folder would share: its node, its run directories, its group. */
static int wire(lcm *l, pst_err *err)
{
    const lcm_opts *o = &l->opts;
    int rc = pst_fs_mkdirs(l->verb.settings.state_dir.value, 0700, err);
    if (!rc)
        l->state_dir = realpath(l->verb.settings.state_dir.value, NULL);
    if (!rc && !l->state_dir)
        rc = pst_err_sys(err, errno, "cannot use the state folder %s", l->verb.settings.state_dir.value);
    if (!rc)
        rc = lcm_node_id_lock(l->state_dir, o->site, err);
    if (!rc)
        rc = pst_client_open(&l->verb.settings, "penstock-lcm", &l->verb.client, err);
    if (!rc)
        rc = lcm_node_id_open(l->state_dir, o->site, o->node, &l->node, err);
    if (rc < 0)
        return rc;
    check_objects(&l->verb.settings);
    l->environ = pst_settings_environ(&l->verb.settings);
    lcm_shell_conf conf = {.client = l->verb.client,
                           .site = o->site,
                           .node = &l->node,
                           .state_dir = l->state_dir,
                           .launcher = lcm_launcher_find(o->launcher),
                           .kubernetes = &o->kube,
                           .environ = (const char *const *)l->environ,
                           .overcommit = o->overcommit,
                           .floor = l->floor,
                           .address = l->address,
                           .stores = o->stores,
                           .keep_ended_us = o->keep_us,
                           .keep_ended_bytes = o->keep_bytes,
                           .at_least_once = l->verb.settings.embedded};
    rc = lcm_shell_open(&conf, &l->shell, err);
    return rc ? rc : lcm_shell_connect(l->shell, err);
}

/* ---- loop, drain -------------------------------------------------------------------------------------------------------------- */

static int loop(lcm *l, pst_err *err)
{
    pst_dump *dump = NULL;
    lcm_metrics *metrics = NULL;
    char *token_path = pst_token_path(l->state_dir);
    int rc = pst_dump_new("lcm", lcm_shell_dump, l->shell, &dump, err);
    if (!rc)
        rc = lcm_metrics_open((int)l->opts.port, l->node.epoch, dump, token_path, &metrics, err);
    free(token_path);
    pst_log(PST_LOG_INFO, "lcm", "event=ready site=%s node=%s epoch=%lld address=%s", l->opts.site, l->node.name, (long long)l->node.epoch,
            l->address);
    while (!rc && !pst_stop_requested()) {
        pst_dump_serve(dump);
        rc = lcm_shell_round(l->shell, ROUND_MS, err);
        lcm_metrics_show(metrics, lcm_shell_dump, l->shell);
    }
    lcm_metrics_close(metrics);
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
    lcm_shell_close(l->shell);
    lcm_node_id_done(&l->node);
    for (char **v = l->environ; v && *v; v++)
        free(*v);
    free(l->environ);
    free(l->state_dir);
    return pst_verb_end(&l->verb, rc == PST_ESTOPPED ? 0 : rc);
}

static int lcm_run(int argc, char **argv)
{
    lcm l = {0};
    int status = pst_verb_parse(&l.verb, &lcm_usage, argc, argv, &l.opts, 0, 0);
    if (status >= 0)
        return status;
    if (l.opts.print_fsm)
        return pst_verb_end(&l.verb, print_fsm());
    int rc = lcm_opts_check(&l.opts, &l.floor, &l.verb.err);
    if (!rc)
        rc = lcm_advertise(l.opts.advertise, l.address, &l.verb.err);
    if (!rc) {
        pst_stop_install();
        sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_usr2}, NULL);
        rc = wire(&l, &l.verb.err);
    }
    if (!rc)
        rc = loop(&l, &l.verb.err);
    return drain(&l, rc, &l.verb.err);
}

const pst_verb pst_lcm_verb = {"lcm", "run the processes of jobs on this computer", "services", lcm_run, PST_USAGES(&lcm_usage)};
