/* fs.h - files and folders: bounded reads, atomic durable writes, paths. @thread any. */
#ifndef PST_BASE_FS_H
#define PST_BASE_FS_H

#include "common/base/buf.h"
#include "common/base/err.h"

#include <sys/types.h>

int pst_fs_mkdirs(const char *path, mode_t mode, pst_err *err); /* with parents; existing is fine */
/* A descriptor for reading a regular file, or PST_E…: never waits for the other end of somebody's FIFO, opens no device. flags: O_NOFOLLOW or 0. */
int pst_fs_open_regular(const char *path, int flags, pst_err *err);
/* The same for what a person names: "-" is stdin, and /dev/fd/N, as a shell's <(…) gives them, may be a pipe. */
int pst_fs_open_input(const char *path, pst_err *err);
/* As open_input. */
int pst_fs_read(const char *path, size_t bytes_max, pst_buf *ret_buf, pst_err *err); /* PST_ELIMIT when larger; path "-" = stdin */
/* Writes path.tmp-<pid>, fsyncs, renames over path, fsyncs the folder: a reader sees the old or the whole new file. */
int pst_fs_write_atomic(const char *path, const void *data, size_t len, mode_t mode, pst_err *err);
/* The same without waiting for the disk: for what says nothing any more once the computer has been started anew. */
int pst_fs_replace(const char *path, const void *data, size_t len, mode_t mode, pst_err *err);
int pst_fs_remove_tree(const char *path, pst_err *err); /* does not follow links; absent is fine */
bool pst_fs_exists(const char *path);
char *pst_fs_join(const char *dir, const char *name); /* free() it */
/* Opens `name` inside dirfd with openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS); -1 and errno. */
int pst_fs_open_beneath(int dirfd, const char *name, int flags, mode_t mode);
/* write(2) all of it; 0 or PST_EIO. */
int pst_fs_write_all(int fd, const void *data, size_t len);
/* Writes text into an existing file in one write, as files of /proc and /sys want it. 0 or errno; async-signal-safe. */
int pst_fs_put_text(const char *path, const char *text);
/* A number or 0..; "1MiB", "512 MB", "4k", "10": bytes. Returns 0 or PST_EPARSE. */
int pst_bytes_parse(const char *text, int64_t *ret_bytes);
/* "5ms", "2s", "1m", "3h", "100us"; a bare number is seconds. Returns 0 or PST_EPARSE. */
int pst_span_parse(const char *text, int64_t *ret_us);
/* The candidate nearest to word by edit distance (at most 1/2 of its length), or NULL: for "did you mean". */
const char *pst_nearest(const char *word, const char *const *candidates, size_t n);

#endif
