/* stores.h - may the buckets of a manifest be used? Each is asked, by one signed request for one key of it. Whether it may be written to is known only by
 * writing, so that is found out at the end of a job. */
#ifndef PST_PLATFORM_STORES_H
#define PST_PLATFORM_STORES_H

#include "schemas/manifest.h"

/* NULL = all of them can be used, or there is none; else why one cannot: free(). No secret is in it. allowed: pst_s3_allowed(). Waits limit_ms at most, and a
 * second more where a server is slow to be left; stopped (NULL = never) ends it, with an answer that means nothing.
 * @thread any */
char *pst_stores_refused(const pst_manifest *m, const char *allowed, int limit_ms, bool (*stopped)(void *arg), void *arg);

#endif
