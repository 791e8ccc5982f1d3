/* tb_files.h - the event files of TensorBoard below a folder, found as they appear and read as they grow. @thread one owner. */
#ifndef PST_LCM_SUPERVISOR_TB_FILES_H
#define PST_LCM_SUPERVISOR_TB_FILES_H

#include "schemas/events.h"

#include <stdbool.h>

#define PST_TB_FILES_MAX 1000 /* below one folder; further ones are not read, which is said */

typedef struct sup_tb_files sup_tb_files;

typedef struct sup_tb_files_conf {
    int dir_fd;          /* borrowed */
    const char *name;    /* the folder below it, "" = itself; need not exist yet; kept */
    const char *process; /* "learner-2", kept; of a folder that learners share its own sub-folder is read */
    bool shared, first;  /* the first learner reads all but the others' sub-folders */
    void (*point)(void *arg, const pst_metric_point *point);
    bool (*anothers)(void *arg, const char *entry); /* an entry of the top is the folder of another process; asked if shared and first */
    void (*say)(void *arg, const char *text);
    void *arg;
} sup_tb_files_conf;

/* Event files that are there already are passed over up to their present end. */
sup_tb_files *sup_tb_files_new(const sup_tb_files_conf *conf);
void sup_tb_files_poll(sup_tb_files *t); /* at most some MiB */
void sup_tb_files_end(sup_tb_files *t);  /* reads what is left, with bounds; frees; NULL-safe */

#endif
