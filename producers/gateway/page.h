/* page.h - the page's files as the build puts them into the binary (CMakeLists.txt makes the table). */
#ifndef PST_PRODUCERS_GATEWAY_PAGE_H
#define PST_PRODUCERS_GATEWAY_PAGE_H

#include <stddef.h>

typedef struct gw_page_file {
    const char *name; /* as in web/ */
    const unsigned char *data;
    const size_t *len;
} gw_page_file;

extern const gw_page_file gw_page_files[]; /* ends with an entry of zeros */

#endif
