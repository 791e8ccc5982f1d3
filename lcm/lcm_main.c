/* lcm_main.c - penstock lcm: settings, the site's lock, the loop, the drain. SIGTERM: learners go on and are adopted at the next start;
 * SIGUSR2: the site is stopped with everything that runs on it. */
#include "common/base/clock.h"
#include "common/base/dump.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "lcm/lcm.h"
#include "lcm/launchers.h"
#include "lcm/lcm_shell.h"
#include "lcm/process_fsm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct lcm_opts {
    const char *site, *node, *launcher;
    double overcommit;
    int64_t keep_us, keep_bytes;
    bool print_fsm;
} lcm_opts;

static const pst_opt opts[] = {
    {"site", 0, PST_OPT_STR, offsetof(lcm_opts, site), "NAME", "local", "the site that this node belongs to"},
    {"node", 0, PST_OPT_STR, offsetof(lcm_opts, node), "NAME", NULL,
     "name of this node at its first start; then kept in the state folder [the host's name and a random part]"},
    {"launcher", 0, PST_OPT_STR, offsetof(lcm_opts, launcher), "NAME", "local", "how processes are started: local = on this computer"},
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
                                        "its site with an id of its own, kept "
                                        "in "
                                        "the state folder; a second one in the same folder waits until the first has gone. SIGTERM ends "
                                        "the LCM alone: learners go on and are "
                                        "adopted at the next start. SIGUSR2 ends every process of the node first.",
                                .examples = "penstock lcm\npenstock lcm --site rack7 --node gpu3 --overcommit 2",
                                .opts = opts,
                                .n_opts = sizeof opts / sizeof *opts};

static volatile sig_atomic_t site_stop;

static void on_usr2(int sig)
{
    site_stop = 1;
    pst_stop_request(); /* waits end */
}

/* The lock goes with the process; a standby says that it waits, once. */
static int lock_site(const char *state_dir, const char *site, pst_err *err)
{
    char *dir = pst_sprintf("%s/sites/%s", state_dir, site), *path = pst_fs_join(dir, "lock");
    int rc = pst_fs_mkdirs(dir, 0700, err), fd = -1;
    if (!rc && (fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0)
        rc = pst_err_sys(err, errno, "cannot open %s", path);
    for (bool said = false; !rc; said = true) {
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(fd, F_OFD_SETLK, &whole) == 0)
            break;
        if (errno != EAGAIN && errno != EACCES)
            rc = pst_err_sys(err, errno, "cannot lock %s", path);
        else if (pst_stop_requested())
            rc = PST_ESTOPPED;
        if (!said)
            pst_log(PST_LOG_INFO, "lcm",
                    "event=standby site=%s reason=\"another LCM runs this site from this state folder; waiting until it has gone\"", site);
        pst_sleep_ms(200);
    }
    free(path);
    free(dir);
    return rc; /* fd stays open on purpose */
}

static int run_site(const lcm_opts *o, const pst_settings *settings, const char *state_dir, pst_client *client, pst_err *err)
{
    char **env = pst_settings_environ(settings);
    lcm_shell *s = NULL;
    pst_dump *dump = NULL;
    lcm_node_id node = {0};
    int rc = lcm_node_id_open(state_dir, o->site, o->node, &node, err);
    lcm_shell_conf conf = {.client = client,
                           .site = o->site,
                           .node = &node,
                           .state_dir = state_dir,
                           .launcher = lcm_launcher_find(o->launcher),
                           .environ = (const char *const *)env,
                           .overcommit = o->overcommit,
                           .keep_ended_us = o->keep_us,
                           .keep_ended_bytes = o->keep_bytes,
                           .at_least_once = settings->embedded};
    if (!rc)
        rc = lcm_shell_open(&conf, &s, err);
    if (!rc)
        rc = lcm_shell_connect(s, err);
    if (!rc)
        pst_log(PST_LOG_INFO, "lcm", "event=ready site=%s node=%s epoch=%lld", o->site, node.name, (long long)node.epoch);
    if (!rc)
        rc = pst_dump_new("lcm", lcm_shell_dump, s, &dump, err);
    while (!rc && !pst_stop_requested()) {
        pst_dump_serve(dump);
        rc = lcm_shell_round(s, 100, err);
    }
    if (s && site_stop && (!rc || rc == PST_ESTOPPED)) {
        pst_stop_reset(); /* the request was ours; a SIGTERM from now on gives up waiting */
        pst_err_clear(err);
        pst_log(PST_LOG_INFO, "lcm", "event=stopping_site site=%s", o->site);
        rc = lcm_shell_stop_site(s, err);
    }
    pst_dump_free(dump);
    lcm_shell_close(s);
    lcm_node_id_done(&node);
    for (char **v = env; v && *v; v++)
        free(*v);
    free(env);
    return rc == PST_ESTOPPED ? 0 : rc;
}

static int refuse_launcher(const char *name, pst_err *err)
{
    char *names = lcm_launcher_names();
    int rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "there is no launcher '%s': --launcher is one of %s", name, names);
    free(names);
    return rc;
}

static int lcm_run(int argc, char **argv)
{
    lcm_opts o = {0};
    pst_settings settings;
    char **args, *state_dir = NULL;
    int n_args;
    pst_err err = {0};
    int rc = pst_opt_parse(&usage, argc, argv, &o, &settings, &args, &n_args, &err);
    if (rc == 1)
        return 0;
    if (!rc && n_args)
        rc = pst_err_set(&err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "unexpected argument '%s'", args[0]);
    else if (!rc && !pst_rundir_name_ok(o.site))
        rc = pst_err_set(&err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "'%s' is no site name: letters, digits, . _ -", o.site);
    else if (!rc && o.node && (!pst_rundir_name_ok(o.node) || strlen(o.node) > 60))
        rc =
            pst_err_set(&err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "'%s' is no node name: letters, digits, . _ -, at most 60", o.node);
    else if (!rc && !lcm_launcher_find(o.launcher))
        rc = refuse_launcher(o.launcher, &err);
    else if (!rc && !(o.overcommit > 0 && o.overcommit <= 1000))
        rc = pst_err_set(&err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--overcommit must be above 0 and at most 1000");
    if (rc < 0) {
        pst_say_err("lcm", &err);
        return pst_err_exit(&err);
    }
    free(args);
    if (o.print_fsm) {
        pst_buf table = {0};
        lcm_fsm_markdown(&table);
        fputs(table.data, stdout);
        pst_buf_done(&table);
        pst_settings_done(&settings);
        return 0;
    }
    pst_stop_install();
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_usr2}, NULL);
    rc = pst_fs_mkdirs(settings.state_dir.value, 0700, &err);
    if (!rc && !(state_dir = realpath(settings.state_dir.value, NULL)))
        rc = pst_err_sys(&err, errno, "cannot use the state folder %s", settings.state_dir.value);
    pst_client *client = NULL;
    if (!rc)
        rc = lock_site(state_dir, o.site, &err);
    if (!rc)
        rc = pst_client_open(&settings, "penstock-lcm", &client, &err);
    if (!rc)
        rc = run_site(&o, &settings, state_dir, client, &err);
    if (rc < 0 && rc != PST_ESTOPPED)
        pst_log_err("lcm", &err);
    pst_client_close(client);
    pst_settings_done(&settings);
    free(state_dir);
    return rc < 0 && rc != PST_ESTOPPED ? pst_err_exit(&err) : 0;
}

const pst_verb pst_lcm_verb = {"lcm", "run the processes of jobs on this computer", "services", lcm_run, PST_USAGES(&usage)};
