/* Any bytes as a record of a pipeline's state, as they are and with the checksum and the fingerprint put right, so that what lies behind them is reached. What
 * is taken is told again as a record that is taken, and gives the same windows. */
#include "common/base/hash.h"
#include "inference/state/keyed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const pst_window windows[] = {{0, PST_WINDOW_MEAN, .last = 5, .self = true},
                                     {0, PST_WINDOW_COUNT, .ms = 5000},
                                     {1, PST_WINDOW_LAG, .last = 2},
                                     {1, PST_WINDOW_SINCE, .last = 0}};
static const pst_keyed_plan plan = {.windows = windows,
                                    .n_windows = 4,
                                    .series = {{5, 5000, 100}, {2, 0, 100}},
                                    .n_series = 2,
                                    .keys_max = 4,
                                    .bytes_max = 1 << 20,
                                    .fingerprint = 0x0102030405060708};

static const pst_slice key = {"k", 1};

static void both(pst_keyed *a)
{
    const double x[] = {1, 2};
    double read[2][4];
    pst_slice k, value;
    pst_err err = {0};
    int64_t next = pst_keyed_offset(a);
    if (next == INT64_MAX)
        return;
    pst_keyed_enter(a, key, -1, next + 1, x);
    if (!pst_keyed_change(a, 0, &k, &value))
        abort();
    pst_keyed *b = pst_keyed_new(&plan);
    if (pst_keyed_restore(b, k, value, &err) < 0)
        abort();
    pst_keyed_read(a, key, 77, x, read[0]);
    pst_keyed_read(b, key, 77, x, read[1]);
    for (int i = 0; i < 4; i++)
        if (memcmp(&read[0][i], &read[1][i], sizeof(double)) != 0 && !(isnan(read[0][i]) && isnan(read[1][i])))
            abort();
    pst_keyed_free(b);
}

static void one(const void *bytes, size_t len)
{
    pst_keyed *a = pst_keyed_new(&plan);
    pst_err err = {0};
    if (pst_keyed_restore(a, key, (pst_slice){bytes, len}, &err) == 0 && bytes)
        both(a);
    pst_keyed_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    one(data, len);
    if (len < 29)
        return 0;
    uint8_t *own = malloc(len);
    memcpy(own, data, len);
    own[0] = 1;
    for (int i = 0; i < 8; i++)
        own[1 + i] = (uint8_t)(plan.fingerprint >> (8 * i));
    uint32_t crc = pst_crc32c(0, own, len - 4);
    for (int i = 0; i < 4; i++)
        own[len - 4 + (size_t)i] = (uint8_t)(crc >> (8 * i));
    one(own, len);
    free(own);
    return 0;
}
