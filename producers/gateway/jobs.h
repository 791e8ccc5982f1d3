/* jobs.h - what submissions share, however their body comes (jobs.c, jobs_upload.c). @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_JOBS_H
#define PST_PRODUCERS_GATEWAY_JOBS_H

#include "producers/gateway/gateway.h"

/* Answers a manifest that cannot run with all that is wrong with it: true. */
bool gw_manifest_refuse(pst_http_req *req, const char *manifest);
/* What the request's address and head say beside its body: id, user and time of the event. false: they cannot be, and req is answered. */
bool gw_request_complete(pst_http_req *req, pst_job_request *r);
/* request_check.c: answers a request whose texts the Trainer could only refuse as nobody's: true. */
bool gw_request_refuse(pst_http_req *req, const pst_job_request *r);
/* The same for a submission whose request id stands for another manifest or other code already. */
bool gw_reused_refuse(gw_state *g, pst_http_req *req, const pst_job_request *r);
/* POST /v1/jobs with a body of multipart/form-data. Takes req. */
void gw_jobs_upload(gw_state *g, pst_http_req *req);
/* The archive of a part, checked, becomes a request's code: in the event, or in the object store. @thread any but the loop's: it reads and writes */
void gw_code_put_away(const gw_state *g, const char *part, pst_slice archive, const char *media_type, pst_job_code *ret_code, pst_err *err);

#endif
