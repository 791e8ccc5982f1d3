/* supervisor.h - runs beside each learner: code and data in, the command, its output and state out as events (lcm/supervisor/).
 *
 *     supervise_main.c  the verb: settings, lock, client, outlet        run.c         the run: spec, folders, what it says
 *     supervise.c       the sequence of one run, and how it ends        prepare.c     code and data; topic_data.c: a range of a topic
 *     learner.c         the process: pipes, signals, grace, its tree    environ.c     what it sees (docs/learner.md)
 *     lines, metric_line, limiter   its output as events                results.c     training log, model
 *     outlet.c, spool.c             the way out, broker or not          sink_kafka.c  Kafka behind the outlet
 *
 *     keeper.c          the process above it                        box.c         isolation and limits of the learner
 *     status.c          where it stands, at SIGUSR1
 *
 * It outlives the LCM that started it (own session) and its learner never outlives it (PDEATHSIG, the keeper, a control group; the LCM asks
 * all of them before a successor starts: lcm/local/sweep.h). */
#ifndef PST_LCM_SUPERVISOR_SUPERVISOR_H
#define PST_LCM_SUPERVISOR_SUPERVISOR_H

#include "common/base/opt.h"

extern const pst_verb pst_supervise_verb; /* internal: penstock supervise --run-dir DIR */

#endif
