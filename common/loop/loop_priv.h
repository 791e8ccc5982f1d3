/* loop_priv.h - what of loop.c the HTTP server uses; not for others. */
#ifndef PST_LOOP_LOOP_PRIV_H
#define PST_LOOP_LOOP_PRIV_H

#include "common/loop/loop.h"

struct event_base;
struct event_base *loop_base(pst_loop *l);

#endif
