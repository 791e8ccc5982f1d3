/* process.h - what the LCM and its launchers both say of one process: what is seen of it, and which devices it has. Its name is a
 * pst_process_id (common/objects/rundir.h). @thread any. */
#ifndef PST_LCM_PROCESS_H
#define PST_LCM_PROCESS_H

#include "common/objects/rundir.h"

/* What a launcher sees. */
typedef enum {
    PST_LCM_SEEN_ABSENT,   /* intended, never started */
    PST_LCM_SEEN_ALIVE,    /* its supervisor lives */
    PST_LCM_SEEN_ENDED,    /* exit.json is there, no supervisor */
    PST_LCM_SEEN_VANISHED, /* started once, no supervisor, no exit.json */
    PST_LCM_SEEN_FLUSHING  /* exit.json is there, the supervisor still publishes */
} pst_lcm_seen;

/* Devices of one process: places in the launcher's inventory, rising. */
#define PST_LCM_DEVICES_MAX 64
typedef struct pst_lcm_devices {
    int n;
    int at[PST_LCM_DEVICES_MAX];
} pst_lcm_devices;

#endif
