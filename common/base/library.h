/* library.h - somebody else's shared library, opened when it is first needed in place of at every start.
 *
 * What is linked is loaded, relocated and initialised by every process, also by those that never call it: MongoDB's client alone took longer
 * than the rest of the program, and left shared memory behind by each process that was killed. So the heavy libraries are not linked:
 * cmake/opened_library.cmake makes a header of pointers to the functions that a folder calls, and NAME_lib_open() of that header, to be
 * called by every way into the adapter before anything else:
 *
 *     if ((rc = curl_lib_open(err)) < 0)
 *         return rc;
 *
 * The file's name is the soname built against, without a path: the loader looks where it looks for the program's other libraries, and no
 * setting, variable or folder of ours takes part. Once open a library stays so: its threads and its state may outlive any caller.
 * @thread any */
#ifndef PST_BASE_LIBRARY_H
#define PST_BASE_LIBRARY_H

#include "common/base/err.h"

typedef struct pst_library_call {
    const char *name;
    void *at; /* the function pointer to fill */
} pst_library_call;

typedef struct pst_library {
    const char *file;    /* "libcurl.so.4" */
    const char *purpose; /* "a schema registry": for the error */
    const char *package; /* "libcurl4": Debian's */
    const pst_library_call *calls;
    size_t n;
    void *handle; /* NULL until it is open */
    struct pst_library *next;
} pst_library;

/* Every library that this program may open announces itself before main(). */
void pst_library_announce(pst_library *l);
/* Opens those that can be opened, needed or not: for what is to know all files of the program. */
void pst_library_open_all(void);

/* All calls are there, or PST_EUNSUPPORTED/FATAL with the cure; the next call tries again. */
int pst_library_open(pst_library *l, pst_err *err);

#endif
