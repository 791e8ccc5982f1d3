/* extract.h - FfDL's regex_extractor: metric points out of lines, by the groups of a manifest (schemas/collect.h). One object a stream of lines.
 * @thread one owner. */
#ifndef PST_LCM_SUPERVISOR_EXTRACT_H
#define PST_LCM_SUPERVISOR_EXTRACT_H

#include "schemas/collect.h"
#include "schemas/events.h"

typedef struct sup_rules sup_rules;     /* the compiled groups, shared by the streams of a run */
typedef struct sup_extract sup_extract; /* one stream's window */

/* Where points go, and sentences for the job's log (each is said once). */
typedef struct sup_extract_to {
    void (*point)(void *arg, const pst_metric_point *point);
    void (*say)(void *arg, const char *text);
    void *arg;
} sup_extract_to;

int sup_rules_new(const pst_collect *c, const sup_extract_to *to, sup_rules **ret_rules, pst_err *err);
void sup_rules_free(sup_rules *r);

sup_extract *sup_extract_new(sup_rules *r);
void sup_extract_line(sup_extract *x, const char *text, size_t len); /* valid UTF-8, without its newline */
void sup_extract_end(sup_extract *x);                                /* what waited for further lines is looked at as it is */
void sup_extract_free(sup_extract *x);

#endif
