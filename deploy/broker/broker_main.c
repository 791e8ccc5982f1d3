/* broker_main.c - `penstock broker`: librdkafka's in-memory cluster, for `up --embedded` and for trying things without Java. A program of its own,
 * penstock-broker, because it stands before the C library's bind() (common/bus/rdkafka/embedded.c), which nothing that runs in earnest may. */
#include "common/base/log.h"
#include "common/base/program.h"
#include "common/base/stop.h"
#include "common/bus/rdkafka/embedded.h"
#include "deploy/broker/broker_opts.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static int broker_run(int argc, char **argv)
{
    broker_opts o = {0};
    pst_settings s = {0};
    pst_err err = {0};
    char **args = NULL;
    pst_embedded *b = NULL;
    int n = 0, rc = pst_opt_parse(&pst_broker_usage, argc, argv, &o, &s, &args, &n, &err);
    if (rc == 1)
        return 0;
    if (!rc)
        rc = pst_embedded_start((int)o.port, &b, &err);
    if (!rc) {
        const char *address = pst_embedded_bootstrap(b);
        PST_ASSERT(address && *address); /* the first line of stdout is what whoever started us waits for */
        printf("%s\n", address);
        fflush(stdout);
        struct pollfd stop = {pst_stop_fd(), POLLIN, 0};
        while (!pst_stop_requested())
            poll(&stop, 1, 1000);
        pst_embedded_stop(b);
    }
    if (rc < 0)
        pst_say_err("broker", &err);
    free(args);
    pst_settings_done(&s);
    return rc < 0 ? pst_err_exit(&err) : 0;
}

int main(int argc, char **argv)
{
    const pst_verb verb = {"broker", NULL, NULL, broker_run, NULL};
    return pst_program_main(&verb, argc, argv);
}
