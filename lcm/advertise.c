/* advertise.c - left to itself a node takes the address that the system would send from towards the outside (a datagram socket that is connected
 * sends nothing, but has one): it is the one that others most likely know. Without a route out the first interface that is up decides, and on a
 * computer without any network its loopback, which is right as long as all nodes are on it. An operator of several networks says it himself.
 * Whose loopback that is the name of the host does not tell, which is localhost on many; the boot's id and the network namespace do. */
#include "lcm/advertise.h"

#include "common/base/address.h"
#include "common/base/fs.h"
#include "common/base/log.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Addresses of documentation (RFC 5737): routed by the default route, reached by nobody. */
static const char outside[] = "192.0.2.1";

static bool by_route(char ret_address[LCM_ADDRESS_MAX])
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)}, from;
    socklen_t size = sizeof from;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, outside, &to.sin_addr);
    bool found = fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && getsockname(fd, (struct sockaddr *)&from, &size) == 0 &&
                 inet_ntop(AF_INET, &from.sin_addr, ret_address, LCM_ADDRESS_MAX) && strcmp(ret_address, "0.0.0.0") != 0;
    if (fd >= 0)
        close(fd);
    return found;
}

/* IPv4 before IPv6: not every framework reads the other. */
static bool by_interface(int family, char ret_address[LCM_ADDRESS_MAX])
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) < 0)
        return false;
    for (const struct ifaddrs *a = all; a && !found; a = a->ifa_next) {
        if (!a->ifa_addr || a->ifa_addr->sa_family != family || !(a->ifa_flags & IFF_UP) || (a->ifa_flags & IFF_LOOPBACK))
            continue;
        const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr;
        if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(six)) /* means nothing without its interface */
            continue;
        const void *raw = family == AF_INET6 ? (const void *)six : &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr;
        found = inet_ntop(family, raw, ret_address, LCM_ADDRESS_MAX);
    }
    freeifaddrs(all);
    return found;
}

/* "Any", or many at once: nobody can connect to those. */
static bool is_of_one(const char *address)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, address, &four) == 1)
        return four.s_addr != INADDR_ANY && four.s_addr != INADDR_BROADCAST && !IN_MULTICAST(ntohl(four.s_addr));
    return inet_pton(AF_INET6, address, &six) == 1 && !IN6_IS_ADDR_UNSPECIFIED(&six) && !IN6_IS_ADDR_MULTICAST(&six) &&
           !IN6_IS_ADDR_LINKLOCAL(&six);
}

void lcm_computer(char ret_id[LCM_COMPUTER_MAX])
{
    pst_buf boot = {0};
    struct stat st;
    *ret_id = 0;
    if (pst_fs_read("/proc/sys/kernel/random/boot_id", 64, &boot, NULL) == 0 && stat("/proc/self/ns/net", &st) == 0)
        snprintf(ret_id, LCM_COMPUTER_MAX, "%.*s/%llu", (int)strcspn(boot.data, "\n"), boot.data, (unsigned long long)st.st_ino);
    pst_buf_done(&boot);
}

int lcm_advertise(const char *given, char ret_address[LCM_ADDRESS_MAX], pst_err *err)
{
    if (given && (!pst_address_is_numeric(given) || !is_of_one(given)))
        return pst_err_set(
            err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
            "--advertise '%.100s' is no address by which others reach this computer: a numeric IPv4 or IPv6 address of one of its "
            "interfaces (ip -brief address)",
            given);
    if (given)
        snprintf(ret_address, LCM_ADDRESS_MAX, "%s", given);
    else if (!by_route(ret_address) && !by_interface(AF_INET, ret_address) && !by_interface(AF_INET6, ret_address))
        snprintf(ret_address, LCM_ADDRESS_MAX, "127.0.0.1");
    if (!given && pst_address_is_loopback(ret_address))
        pst_log(
            PST_LOG_WARN, "lcm",
            "event=no_address address=%s reason=\"no route and no interface but the loopback was found: this node takes part in gangs with "
            "nodes of this computer only; --advertise names an address that others reach\"",
            ret_address);
    return 0;
}
