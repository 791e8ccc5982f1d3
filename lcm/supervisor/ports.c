/* ports.c - a port is reserved twice over. It is bound, on all addresses, so that no program of the host can take it before the command starts. And it
 * is claimed by a name: an abstract Unix socket (unix(7)), which one process of the network namespace can have at a time. The name is kept when
 * the binding is given up for the command, so that another supervisor, of another platform or user, passes over a port that its command has not
 * come to bind yet. Names and bindings go with the process; there is no file to be left behind. */
#include "lcm/supervisor/ports.h"

#include "common/base/buf.h"
#include "common/base/fs.h"
#include "common/base/hash.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LOWEST = 20000, HIGHEST = 65535, ADDRESS_TRIES = 1000 };

/* A descriptor, or -1: somebody has the name. */
static int claim(const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    PST_ASSERT(n + 1 <= sizeof at.sun_path);
    memcpy(at.sun_path + 1, name, n); /* the byte 0 before it: no file */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* On every address, of both families where there are two. */
static int bind_port(int port)
{
    int no = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    bool both = fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0;
    if (both && bind(fd, (struct sockaddr *)&six, sizeof six) == 0)
        return fd;
    bool taken = both && errno == EADDRINUSE;
    if (fd >= 0)
        close(fd);
    fd = taken ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* a computer without IPv6 */
    if (fd >= 0 && bind(fd, (struct sockaddr *)&four, sizeof four) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool take(sup_ports *p, int which, int port)
{
    char name[48];
    snprintf(name, sizeof name, "penstock/port/%d", port);
    int claimed = claim(name), bound = claimed < 0 ? -1 : bind_port(port);
    if (bound < 0) {
        if (claimed >= 0)
            close(claimed);
        return false;
    }
    p->port[which] = port;
    p->name_fd[which] = claimed;
    p->bound_fd[which] = bound;
    return true;
}

/* From a random one on, so that two who look at once rarely meet. */
static bool take_within(sup_ports *p, int which, int from, int to)
{
    unsigned start;
    pst_random(&start, sizeof start);
    int n = to - from + 1;
    for (int i = 0; i < n; i++)
        if (take(p, which, from + (int)((start + (unsigned)i) % (unsigned)n)))
            return true;
    return false;
}

/* Where the kernel takes ports for whoever asks for none in particular (ip(7)). */
static void ephemeral(int *ret_from, int *ret_to)
{
    pst_buf b = {0};
    int from, to;
    *ret_from = 32768;
    *ret_to = 60999;
    if (pst_fs_read("/proc/sys/net/ipv4/ip_local_port_range", 100, &b, NULL) == 0 && sscanf(b.data, "%d %d", &from, &to) == 2 &&
        from <= to) {
        *ret_from = from;
        *ret_to = to;
    }
    pst_buf_done(&b);
}

/* Above the ephemeral range, below it, and in it where it leaves nothing else. */
static bool take_any(sup_ports *p, int which)
{
    int from, to;
    ephemeral(&from, &to);
    return (to < HIGHEST && take_within(p, which, to + 1 > LOWEST ? to + 1 : LOWEST, HIGHEST)) ||
           (from > LOWEST && take_within(p, which, LOWEST, from - 1)) || take_within(p, which, LOWEST, HIGHEST);
}

/* 127.16.0.1 and above: below it live the computer's own names and its resolver. */
static bool take_address(sup_ports *p)
{
    for (int i = 0; i < ADDRESS_TRIES && p->name_fd[SUP_PORTS] < 0; i++) {
        char name[48];
        uint8_t b[3];
        pst_random(b, sizeof b);
        snprintf(p->address, sizeof p->address, "127.%d.%d.%d", 16 + b[0] % 239, b[1], 1 + b[2] % 254);
        snprintf(name, sizeof name, "penstock/address/%s", p->address);
        p->name_fd[SUP_PORTS] = claim(name);
    }
    return p->name_fd[SUP_PORTS] >= 0;
}

int sup_ports_reserve(const char *address, sup_ports *ret_ports, pst_err *err)
{
    sup_ports p = {.name_fd = {-1, -1, -1, -1}, .bound_fd = {-1, -1, -1}};
    bool ok = address || take_address(&p);
    if (address)
        snprintf(p.address, sizeof p.address, "%s", address);
    for (int i = 0; i < SUP_PORTS && ok; i++)
        ok = take_any(&p, i);
    if (!ok) {
        sup_ports_done(&p);
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_RETRY, "ports", 0,
                           "this host has no free TCP port from %d to %d for the process; end what holds them (ss -ltn, ss -xl)", LOWEST,
                           HIGHEST);
    }
    *ret_ports = p;
    return 0;
}

bool sup_ports_interface(const char *address, char *ret_name)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) < 0)
        return false;
    for (const struct ifaddrs *a = all; a && !found; a = a->ifa_next) {
        char text[64] = "";
        int family = a->ifa_addr ? a->ifa_addr->sa_family : AF_UNSPEC;
        if (family == AF_INET)
            inet_ntop(family, &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr, text, sizeof text);
        else if (family == AF_INET6)
            inet_ntop(family, &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr, text, sizeof text);
        found = *text && !strcmp(text, address);
        if (found)
            snprintf(ret_name, IF_NAMESIZE, "%s", a->ifa_name);
    }
    freeifaddrs(all);
    return found;
}

void sup_ports_release(sup_ports *p)
{
    for (int i = 0; i < SUP_PORTS; i++) {
        if (p->bound_fd[i] >= 0)
            close(p->bound_fd[i]);
        p->bound_fd[i] = -1;
    }
}

void sup_ports_done(sup_ports *p)
{
    sup_ports_release(p);
    for (int i = 0; i <= SUP_PORTS; i++) {
        if (p->name_fd[i] >= 0)
            close(p->name_fd[i]);
        p->name_fd[i] = -1;
    }
}
