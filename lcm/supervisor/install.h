/* install.h - carries the supervisor into somebody else's image: `penstock-supervise --install DIR`, run by an init container of our own image, leaves in DIR
 * what the learner's container starts it from:
 *
 *     DIR/ld.so                the dynamic loader of this program: DIR/ld.so --library-path DIR DIR/penstock-supervise supervise …
 *     DIR/penstock-supervise   this program
 *     DIR/lib….so.N            every shared library that it loads or may open
 *
 * so that nothing of the image is needed but a shell for the learner's command: neither its C library nor its age matters. @thread main. */
#ifndef PST_LCM_SUPERVISOR_INSTALL_H
#define PST_LCM_SUPERVISOR_INSTALL_H

#include "common/base/err.h"

/* settings: a file with what it is started with (common/base/handover.h), copied to settings_to, readable by its user alone; NULL: none. */
int sup_install(const char *dir, const char *settings, const char *settings_to, pst_err *err);

#endif
