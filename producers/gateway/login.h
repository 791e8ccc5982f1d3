/* login.h - the form with which a person enters the page under --users. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_LOGIN_H
#define PST_PRODUCERS_GATEWAY_LOGIN_H

#include "common/loop/http.h"

/* Answers req with the form; why: a sentence above it, of ours; NULL = none. */
void gw_login_form(pst_http_req *req, int status, const char *why);
/* The value of a field of an application/x-www-form-urlencoded body, decoded; NULL: it is not there, is there twice, or holds a NUL. free() */
char *gw_form_field(pst_slice body, const char *name);

#endif
