/* retry.c - the pause is the caller's and does not grow: what is waited for here is one broker, one registry or one disk, and who waits is one
 * process that must be back soon after it is. */
#include "common/base/retry.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

bool pst_retry(const char *component, pst_err *err, int wait_ms)
{
    if (pst_stop_requested())
        return false;
    if (component)
        pst_log_err(component, err);
    pst_err_clear(err);
    pst_sleep_ms(wait_ms);
    return true;
}
