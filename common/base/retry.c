/* retry.c - the pause is the caller's and does not grow: what is waited for here is one broker, one registry or one disk, and who waits is one
 * process that must be back soon after it is. */
#include "common/base/retry.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"

enum { SLICE_MS = 50 };

bool pst_retry_pause(int wait_ms, bool (*stopped)(void *arg), void *arg)
{
    while (!(stopped ? stopped(arg) : pst_stop_requested())) {
        if (wait_ms <= 0)
            return true;
        pst_sleep_ms(wait_ms < SLICE_MS ? wait_ms : SLICE_MS);
        wait_ms -= SLICE_MS;
    }
    return false;
}

bool pst_retry(const char *component, pst_err *err, int wait_ms)
{
    if (pst_stop_requested())
        return false;
    if (component)
        pst_log_err(component, err);
    pst_err_clear(err);
    pst_retry_pause(wait_ms, NULL, NULL); /* asked to stop meanwhile: the next attempt is the last */
    return true;
}
