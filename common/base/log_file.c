/* log_file.c - a log file that is renamed when it is full. Two processes may write one file for a moment (a service that is ending and its successor): the one that has the
 * lock of the full file renames it; whoever comes later finds another file under the name and only goes over to that. */
#include "common/base/log_file.h"

#include "common/base/buf.h"
#include "common/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AGAIN_US = 10 * 1000000 };

static const char variable[] = "PENSTOCK_LOG_FILE";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char file[PATH_MAX]; /* "" = none; written before watched is */
static int64_t full_bytes, again_us;
static _Atomic bool watched;

char *pst_log_file_variable(const char *path, int64_t bytes_max)
{
    return pst_sprintf("%s=%lld:%s", variable, (long long)bytes_max, path);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool written_by(int fd, const struct stat *wanted)
{
    struct stat st;
    return fstat(fd, &st) == 0 && same_file(&st, wanted);
}

void pst_log_file_watch(const char *path, int64_t bytes_max)
{
    struct stat st;
    if (bytes_max < 1 || strlen(path) + 16 > sizeof file || stat(path, &st) < 0 || !S_ISREG(st.st_mode) || !written_by(2, &st))
        return;
    pthread_mutex_lock(&lock);
    snprintf(file, sizeof file, "%s", path);
    full_bytes = bytes_max;
    again_us = 0;
    watched = true;
    pthread_mutex_unlock(&lock);
}

void pst_log_file_take(void)
{
    const char *value = getenv(variable);
    char *end;
    long long bytes = value ? strtoll(value, &end, 10) : 0;
    if (bytes > 0 && *end == ':')
        pst_log_file_watch(end + 1, bytes);
    unsetenv(variable); /* children write elsewhere */
}

/* file.3 → file.4, … file → file.1; what was file.4 is gone. */
static bool move_on(void)
{
    char from[PATH_MAX + 16], to[PATH_MAX + 16];
    for (int i = PST_LOG_FILES_KEPT; i > 1; i--) {
        snprintf(from, sizeof from, "%s.%d", file, i - 1);
        snprintf(to, sizeof to, "%s.%d", file, i);
        rename(from, to);
    }
    snprintf(to, sizeof to, "%s.1", file);
    return rename(file, to) == 0;
}

/* Descriptors 1 and 2 go over to the file that has the name. */
static bool go_over(int fd, const struct stat *full)
{
    bool out = written_by(1, full), done = dup3(fd, 2, 0) == 2;
    return done && (!out || dup3(fd, 1, 0) == 1);
}

static bool rotate(const struct stat *full)
{
    struct stat named;
    char fresh[PATH_MAX + 16];
    int old = fcntl(2, F_DUPFD_CLOEXEC, 3); /* unlocked by hand: a child may hold the same open file */
    bool locked = old >= 0 && flock(old, LOCK_EX) == 0, done = false, mine = locked && stat(file, &named) == 0 && same_file(&named, full);
    snprintf(fresh, sizeof fresh, "%s.new", file);
    /* The new file is there before the old one's name is given up: a full disk leaves everything as it is. */
    int fd = -1;
    if (locked)
        fd = open(mine ? fresh : file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && mine) {
        done = move_on() && rename(fresh, file) == 0;
        if (!done)
            unlink(fresh);
    }
    done = fd >= 0 && (done || !mine) && go_over(fd, full);
    if (locked)
        flock(old, LOCK_UN);
    if (old >= 0)
        close(old);
    if (fd >= 0)
        close(fd);
    return done;
}

void pst_log_file_step(void)
{
    struct stat st;
    if (!watched || fstat(2, &st) < 0 || st.st_size < full_bytes)
        return;
    int saved = errno;
    pthread_mutex_lock(&lock);
    /* another thread may have been faster */
    if (fstat(2, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= full_bytes && pst_mono_us() >= again_us && !rotate(&st))
        again_us = pst_mono_us() + AGAIN_US;
    pthread_mutex_unlock(&lock);
    errno = saved;
}
