/* loop_priv.h - what loop.c lends to the HTTP server; not for others. */
#ifndef PST_LOOP_LOOP_PRIV_H
#define PST_LOOP_LOOP_PRIV_H

#include "common/loop/loop.h"

struct event_base;
struct event_base *loop_base(pst_loop *l);

#endif
