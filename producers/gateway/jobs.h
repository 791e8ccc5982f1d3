/* jobs.h - what submissions share, however their body comes (jobs.c, jobs_upload.c). @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_JOBS_H
#define PST_PRODUCERS_GATEWAY_JOBS_H

#include "producers/gateway/gateway.h"

/* Answers a manifest that cannot run with all that is wrong with it: true. */
bool gw_manifest_refuse(pst_http_req *req, const char *manifest);
/* What the request's address and head say beside its body: id, user and time of the event. */
void gw_request_complete(pst_http_req *req, pst_job_request *r);
/* POST /v1/jobs with a body of multipart/form-data. Takes req. */
void gw_jobs_upload(gw_state *g, pst_http_req *req);

#endif
