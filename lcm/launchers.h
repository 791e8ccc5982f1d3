/* launchers.h - the launchers that this program has, by name. @thread any. */
#ifndef PST_LCM_LAUNCHERS_H
#define PST_LCM_LAUNCHERS_H

#include "lcm/launcher.h"

const pst_launcher_ops *lcm_launcher_find(const char *name); /* NULL: there is none of that name */
char *lcm_launcher_names(void);                              /* "local, kubernetes", for a person; free() */

#endif
