/* score_slot.c - a slot is a lock on a file that nobody writes: the kernel lets go of it however a process ends, so no lease has to run out.
 * Host, machine id and state folder are in the name, because containers share host names and hosts share state folders. */
#include "inference/run/score_slot.h"

#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/lock.h"
#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS_MAX = 1024 };

/* Two hosts may have one name, and two state folders one host: both go into the digest. */
static void place(const char *state_dir, char *ret, size_t size)
{
    char host[64] = "host", hex[65], *real = realpath(state_dir, NULL);
    gethostname(host, sizeof(host) - 1);
    host[strcspn(host, ".")] = 0;
    for (char *c = host; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", *c))
            *c = '-';
    pst_buf machine = {0}, all = {0};
    if (pst_fs_read("/etc/machine-id", 256, &machine, NULL) == 0)
        pst_buf_add(&all, machine.data ? machine.data : "", machine.len);
    pst_buf_printf(&all, "%s\n%s", host, real ? real : state_dir);
    pst_sha256_hex(all.data, all.len, hex);
    snprintf(ret, size, "%.40s-%.6s", host, hex);
    pst_buf_done(&machine);
    pst_buf_done(&all);
    free(real);
}

/* The first number whose file is not locked. Nothing here is a reason not to score: without a folder it is a random id. */
int score_slot_take(const char *state_dir, const char *pipeline, int wanted, int from, score_slot *ret_slot, pst_err *err)
{
    score_slot s = {.fd = -1, .number = wanted};
    if (wanted >= 0) {
        snprintf(s.id, sizeof(s.id), "%.150s.%d", pipeline, wanted);
        *ret_slot = s;
        return 0;
    }
    char *dir = pst_fs_join(state_dir, "score"), here[64];
    pst_err why = {0};
    int rc = pst_fs_mkdirs(dir, 0700, &why);
    place(state_dir, here, sizeof(here));
    for (int n = from; rc == 0 && n < from + SLOTS_MAX && s.fd < 0; n++) {
        char *path = pst_sprintf("%s/%s.%d.lock", dir, pipeline, n);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            rc = pst_err_sys(&why, errno, "cannot open %s", path);
        else if (pst_lock_try(fd, PST_LOCK_PLAIN) < 0)
            close(fd);
        else
            s.fd = fd, s.number = n;
        free(path);
    }
    free(dir);
    if (s.fd < 0) { /* a read-only state folder is no reason not to score: an id that nobody else has, at the price of slower restarts */
        char random[37];
        pst_uuid7(random);
        s.number = from;
        snprintf(s.id, sizeof(s.id), "%.120s.%s.%s", pipeline, here, random + 24);
        pst_log(PST_LOG_WARN, "score", "event=no_slot pipeline=%s id=%s why=\"%s\"", pipeline, s.id,
                why.code ? why.text : "all slots are taken");
    } else {
        snprintf(s.id, sizeof(s.id), "%.120s.%s.%d", pipeline, here, s.number);
    }
    *ret_slot = s;
    return 0;
}

void score_slot_release(score_slot *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}
