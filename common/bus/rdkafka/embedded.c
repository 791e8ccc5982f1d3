/* embedded.c - librdkafka's in-memory cluster, on a port of our choice.
 *
 * The library always binds port 0 and has no option. Programs that link this file therefore have a bind() of their own, broker_bind() under
 * another name (CMakeLists.txt): it passes every call on as it is, except on a thread that is inside pst_embedded_start() with a wanted port,
 * where a socket that is to be bound to port 0 becomes the one that has that port already. The cluster's listener is bound in that very call on
 * that very thread, so nothing else can be hit. */
#include "common/bus/rdkafka/embedded.h"

#include "common/bus/rdkafka/rdk.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <librdkafka/rdkafka_mock.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BACKLOG = 128 };

struct pst_embedded {
    rdk *client; /* its own client half stays unused */
    rd_kafka_mock_cluster_t *cluster;
};

static __thread int taken = -1; /* a socket that listens where the cluster shall; -1: nowhere in particular */

int broker_bind(int fd, const struct sockaddr *address, socklen_t len); /* called by nobody under this name */
int broker_bind(int fd, const struct sockaddr *address, socklen_t len)
{
    if (taken >= 0 && address->sa_family == AF_INET && len >= sizeof(struct sockaddr_in) &&
        !((const struct sockaddr_in *)address)->sin_port)
        return dup3(taken, fd, O_CLOEXEC) < 0 ? -1 : 0;
    return (int)syscall(SYS_bind, fd, address, len);
}

/* The port is taken here, because the library aborts the program (an assertion) when its own bind fails: what was looked at only could be
 * another's by then. Returns 0 or errno. */
static int take(int port, int *ret_fd)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), e = 0;
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one); /* a restart finds its old connections in TIME_WAIT */
    if (bind(fd, (struct sockaddr *)&in, sizeof in) < 0 || listen(fd, BACKLOG) < 0) {
        e = errno;
        close(fd);
        return e;
    }
    *ret_fd = fd;
    return 0;
}

static void let_go(int fd)
{
    if (fd >= 0)
        close(fd);
}

int pst_embedded_start(int port, pst_embedded **ret_broker, pst_err *err)
{
    if (port < 0 || port > 65535)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "kafka", 0, "port %d is not 0 to 65535", port);
    int fd = -1, e = port ? take(port, &fd) : 0;
    if (e)
        return pst_err_set(err, e == EADDRINUSE ? PST_EEXIST : PST_EIO, PST_CLASS_FATAL, "sys", e, "cannot serve Kafka on 127.0.0.1:%d: %s",
                           port, strerror(e));
    pst_embedded *b = pst_alloc(sizeof *b);
    bus_prop nobody = {(char *)"bootstrap.servers", (char *)"127.0.0.1:1", (char *)""};
    const pst_bus_conf conf = {.props = &nobody, .n = 1};
    const bus_kv quiet[] = {
        {"client.id", "penstock-embedded"}, {"reconnect.backoff.ms", "60000"}, {"reconnect.backoff.max.ms", "600000"}, {NULL, NULL}};
    b->client = pst_alloc(sizeof *b->client);
    rd_kafka_conf_t *k = rdk_conf_build(&conf, RDK_ADMIN, quiet, NULL, b->client, err);
    if (!k || rdk_new(RD_KAFKA_PRODUCER, k, b->client, err) < 0) {
        let_go(fd);
        pst_embedded_stop(b);
        return PST_EINVAL;
    }
    PST_ASSERT(taken < 0); /* or somebody else's bind would be hit */
    taken = fd;
    b->cluster = rd_kafka_mock_cluster_new(b->client->rk, 1);
    taken = -1;
    let_go(fd); /* the cluster has its own descriptor of it */
    if (!b->cluster) {
        pst_embedded_stop(b);
        return pst_err_set(err, PST_EIO, PST_CLASS_FATAL, "kafka", 0,
                           "cannot serve Kafka on 127.0.0.1:%d: the in-memory cluster did not start", port);
    }
    *ret_broker = b;
    return 0;
}

const char *pst_embedded_bootstrap(const pst_embedded *b)
{
    return rd_kafka_mock_cluster_bootstraps(b->cluster);
}

rd_kafka_mock_cluster_t *bus_embedded_cluster(pst_embedded *b)
{
    return b->cluster;
}

void pst_embedded_stop(pst_embedded *b)
{
    if (!b)
        return;
    if (b->cluster)
        rd_kafka_mock_cluster_destroy(b->cluster);
    if (b->client->rk)
        rdk_free((bus_handle *)b->client);
    else
        free(b->client);
    free(b);
}
