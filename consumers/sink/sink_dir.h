/* sink_dir.h - a folder that grows with topics and never holds a record twice: what is written and how far the topics were read move together.
 *
 * A round's bytes wait in memory. settle() notes in `.penstock-sink.json` how long the files are that will grow, appends, syncs, and writes the note anew with
 * the new places and the container files to be put in place. What is killed in between is found by the next open: files that were growing are cut
 * back, container files that were complete are put in place. One writer at a time (`.penstock-sink.lock`). @thread one. */
#ifndef PST_CONSUMERS_SINK_DIR_H
#define PST_CONSUMERS_SINK_DIR_H

#include "common/base/err.h"

#include <stddef.h>

typedef struct sink_dir sink_dir;

/* Makes the folder where there is none. PST_EEXIST: another sink writes there. what: "files, json"; a folder is one sink's for ever. */
int sink_dir_open(const char *path, const char *what, sink_dir **ret_dir, pst_err *err);
void sink_dir_close(sink_dir *d);                                                /* what was not settled is forgotten */
int64_t sink_dir_place(const sink_dir *d, const char *topic, int32_t partition); /* -1 = never read */
void sink_dir_set_place(sink_dir *d, const char *topic, int32_t partition, int64_t next);
/* The topic was made anew: what its offsets meant before says nothing any more. */
void sink_dir_forget_place(sink_dir *d, const char *topic, int32_t partition);
/* Something of this round is lost (a container file that could not be written): it is never settled. */
void sink_dir_break(sink_dir *d);
/* file: below the folder; folders in it are made. head goes first into a file that is empty. */
void sink_dir_append(sink_dir *d, const char *file, const char *head, size_t head_len, const void *data, size_t len);
size_t sink_dir_pending(const sink_dir *d); /* bytes that wait */
size_t sink_dir_files(const sink_dir *d);   /* that will grow at the next settle */
/* A number that was never given before, durable with the next settle. */
int64_t sink_dir_number(sink_dir *d);
/* At the next settle the complete file `temporary` (its name in the folder, beginning with `.tmp-`) gets its place. */
int sink_dir_place_file(sink_dir *d, const char *temporary, const char *file, pst_err *err);
char *sink_dir_path(const sink_dir *d, const char *file); /* free() */
int sink_dir_settle(sink_dir *d, pst_err *err);           /* nothing where nothing was appended or moved */

#endif
