/* inventory.h - what this computer has: processors, memory, NVIDIA GPUs as the kernel driver lists them. @thread any. */
#ifndef PST_LCM_LOCAL_INVENTORY_H
#define PST_LCM_LOCAL_INVENTORY_H

#include "lcm/launcher.h"

void host_inventory_read(pst_inventory *ret); /* devices: free() */

#endif
