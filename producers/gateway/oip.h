/* oip.h - the Open Inference Protocol's paths (/v2) among the others. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_OIP_H
#define PST_PRODUCERS_GATEWAY_OIP_H

#include "common/loop/http.h"

/* Refusals of /v2 are {"error": …}: answers req and returns true, or is not asked. detail may be NULL. */
bool gw_oip_problem(pst_http_req *req, int status, const char *detail);

#endif
