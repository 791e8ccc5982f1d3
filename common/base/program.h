/* program.h - what our programs have in common: penstock itself, and those beside it that are started by path (penstock-supervise, one for each
 * process of a job; penstock-broker). They lie in one folder, in the build tree as well as installed, so each finds the others beside itself:
 * by /proc/self/exe, which no environment and no argument can turn elsewhere.
 *
 *     int main(int argc, char **argv) { return pst_program_main(&pst_supervise_verb, argc, argv); }
 *
 * @thread main, before any other. */
#ifndef PST_BASE_PROGRAM_H
#define PST_BASE_PROGRAM_H

#include "common/base/opt.h"

/* First of all in main(): closed to other processes' eyes, settings taken over, own log file, signals, terminal, files that are the user's alone. */
void pst_program_begin(void);
/* The whole main() of a program with one verb, whose name may stand before the arguments: it is shown as `penstock VERB …`. */
int pst_program_main(const pst_verb *verb, int argc, char **argv);
/* "/usr/bin/penstock-supervise" for "penstock-supervise": beside the program that runs. free(). PST_ENOTFOUND/FATAL when it is not there. */
int pst_program_find(const char *name, char **ret_path, pst_err *err);
/* What runs jobs' commands on this host: bash where there is one, else /bin/sh. Looked for where systems install it, not by PATH: folders of a person's
 * own are not there inside a sandbox. root: "" = this system's. */
const char *pst_program_shell(const char *root);
/* Becomes `penstock-VERB` with the same arguments; argv[0] is shown as it is. Returns only a failure's exit status, after saying it. */
int pst_program_become(const char *verb, char **argv);

#endif
