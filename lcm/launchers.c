/* launchers.c - the table of launchers. All that the rest of the LCM knows of one is its row, chosen once by `lcm --launcher`: what tells two
 * launchers apart is behind the ops, never in an if. */
#include "lcm/launchers.h"

#include "common/base/buf.h"

#include <string.h>

#define ROW(NAME) &NAME,
static const pst_launcher_ops *const launchers[] = {PST_LAUNCHERS(ROW)};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

const pst_launcher_ops *lcm_launcher_find(const char *name)
{
    for (size_t i = 0; i < LAUNCHERS; i++)
        if (!strcmp(launchers[i]->name, name))
            return launchers[i];
    return NULL;
}

char *lcm_launcher_names(void)
{
    pst_buf names = {0};
    for (size_t i = 0; i < LAUNCHERS; i++)
        pst_buf_printf(&names, "%s%s", i ? ", " : "", launchers[i]->name);
    return pst_buf_steal(&names);
}
