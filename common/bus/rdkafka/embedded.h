/* embedded.h - librdkafka's in-memory cluster as a broker inside this process: for `penstock broker`, which is a program of its own, and for
 * tests. Nothing else links it (target pst_embedded): it puts itself before the C library's bind() for the whole program. @thread any */
#ifndef PST_BUS_EMBEDDED_H
#define PST_BUS_EMBEDDED_H

#include "common/base/err.h"

typedef struct pst_embedded pst_embedded;
/* Serves on 127.0.0.1:port (0 = any free; taken = PST_EEXIST) inside this process. Nothing is kept; transactions do not protect (embedded is never a proof). */
int pst_embedded_start(int port, pst_embedded **ret_broker, pst_err *err);
const char *pst_embedded_bootstrap(const pst_embedded *b);
void pst_embedded_stop(pst_embedded *b);

/* For tests, which inject errors: a rd_kafka_mock_cluster_t. */
struct rd_kafka_mock_cluster_s *bus_embedded_cluster(pst_embedded *b);

#endif
