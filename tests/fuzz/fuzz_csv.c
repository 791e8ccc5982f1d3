/* Any bytes as a CSV file: read to the end or refused, never a crash; every field of a record is text within the record's bound. */
#include "common/base/csv.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    FILE *f = len ? fmemopen((void *)data, len, "r") : NULL;
    pst_csv *c = NULL;
    pst_err err = {0};
    if (!f || pst_csv_open(f, "fuzz", &c, &err) < 0)
        return 0;
    for (size_t i = 0; i < pst_csv_columns(c); i++) {
        int at = pst_csv_find(c, pst_csv_name(c, i));
        if (at < 0)
            abort();
    }
    while (pst_csv_next(c, &err) == 1)
        for (size_t i = 0; i < pst_csv_fields(c); i++) {
            double v;
            if (strlen(pst_csv_field(c, i)) > PST_CSV_RECORD_MAX)
                abort();
            pst_csv_number(pst_csv_field(c, i), &v);
        }
    pst_csv_close(c);
    return 0;
}
