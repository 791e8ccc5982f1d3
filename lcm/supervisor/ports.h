/* ports.h - what a process of a gang can be reached by on this computer: an address of its own and three ports.
 *
 *     sup_ports p;
 *     sup_ports_reserve(&p, &err);    // nobody else is given these while p lives, whoever's platform it is
 *     …the command is about to start…
 *     sup_ports_release(&p);          // the command may bind them now; no other reservation gets them
 *     sup_ports_done(&p);             // the command is gone
 *
 * The address is one of 127.0.0.0/8, so that every process of a gang can listen on the same port as the others, FfDL's 2222. A reservation ends
 * with its process, however that ends. @thread one owner. */
#ifndef PST_LCM_SUPERVISOR_PORTS_H
#define PST_LCM_SUPERVISOR_PORTS_H

#include "common/base/err.h"

enum { SUP_PORT_SERVICE, SUP_PORT_MASTER, SUP_PORT_OTHER, SUP_PORTS };

typedef struct sup_ports {
    char address[64];
    int port[SUP_PORTS];
    int name_fd[SUP_PORTS + 1]; /* of the ports and the address; -1 = none */
    int bound_fd[SUP_PORTS];    /* -1 = released */
} sup_ports;

/* address: of the computer, which its processes share; NULL: one of its own, on this computer only. */
int sup_ports_reserve(const char *address, sup_ports *ret_ports, pst_err *err);
/* The name of the interface that has the address: IF_NAMESIZE bytes; false: none of this computer has. */
bool sup_ports_interface(const char *address, char *ret_name);
void sup_ports_release(sup_ports *p);
void sup_ports_done(sup_ports *p);

#endif
