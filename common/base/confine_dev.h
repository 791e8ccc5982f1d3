/* confine_dev.h - the part of confine.c that gives a job a /dev of its own: what every program counts on, shared memory, terminals that are its
 * own, accelerators and fast networks; no disk, no console, no control device. Device nodes elsewhere mean nothing to it.
 * @thread plan: any; enter: a child after fork. */
#ifndef PST_BASE_CONFINE_DEV_H
#define PST_BASE_CONFINE_DEV_H

#include <stdbool.h>

#define PST_CONFINE_DEVICES 96

typedef struct pst_confine_devices {
    char *path[PST_CONFINE_DEVICES];
    bool folder[PST_CONFINE_DEVICES];
    int n;
} pst_confine_devices;

void pst_confine_devices_plan(pst_confine_devices *ret);
void pst_confine_devices_done(pst_confine_devices *d);
/* In a mount namespace of its own, whose mounts tell nothing to others. 0 or an errno. */
int pst_confine_devices_enter(const pst_confine_devices *d);

#endif
