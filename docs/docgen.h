/* docgen.h - what the two printers of the references share: Markdown pages (docgen.c) and man pages (docgen_man.c). A build tool: it is not
 * installed, and runs while building. */
#ifndef PST_DOCS_DOCGEN_H
#define PST_DOCS_DOCGEN_H

#include "common/base/keys.h"
#include "common/base/opt.h"

#include <stdio.h>

/* What a key takes: "whole number, 1 to 100000", "`avro` or `json`". */
void docgen_key_form(const pst_key *k, char *buf, size_t size);
/* "-w, --wait" or "--request-id R"; numbers with their range: "--limit N (1 to 1000)". */
void docgen_option(const pst_opt *o, char *buf, size_t size);
/* "" without a default. */
const char *docgen_default(const pst_opt *o);
/* Writes every man page below dir; 0 or an exit status. */
int docgen_man(const char *dir);

#endif
