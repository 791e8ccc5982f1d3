/* log_file.h - a log file that rotates itself: the process that writes it puts it aside when it is full and goes on in a new one.
 *
 *     PENSTOCK_LOG_FILE=16777216:/state/log/trainer.log penstock trainer 2>>/state/log/trainer.log      // what `penstock up` does
 *     pst_log_file_take();                                                                             // main, once
 *
 * The file's name moves on (trainer.log → trainer.log.1 → … .4, then gone) and descriptors 1 and 2 are exchanged for the new file in one step, so
 * that no line is lost or cut, whoever writes at that moment. A pipe through `up` would make each service wait for it; copying and truncating
 * would lose what is written in between. @thread any. */
#ifndef PST_BASE_LOG_FILE_H
#define PST_BASE_LOG_FILE_H

#include "common/base/err.h"

enum { PST_LOG_FILE_BYTES = 16 << 20, PST_LOG_FILES_KEPT = 4 };

/* The value of the variable, for a child whose stderr is that file (opened with O_APPEND); free(). */
char *pst_log_file_variable(const char *path, int64_t bytes_max);
/* Takes the variable out of the environment and rotates that file from here on, if it is what stderr writes to. */
void pst_log_file_take(void);
/* Rotates path, which descriptor 2 (and 1, perhaps) writes to, at bytes_max. */
void pst_log_file_watch(const char *path, int64_t bytes_max);
/* After each line: rotates when the file is full. A file that cannot be rotated is written on, and tried again later. */
void pst_log_file_step(void);

#endif
