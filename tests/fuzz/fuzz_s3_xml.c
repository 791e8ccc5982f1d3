/* fuzz_s3_xml.c - answers of an S3 server, from wherever a manifest points: no list has a key that is empty or has a NUL, and a value that is read
 * fits its limit. */
#include "common/objects/s3_xml.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pst_s3_list list = {0};
    pst_err err = {0};
    char *next = NULL;
    int rc = s3_xml_list((const char *)data, size, &list, &next, &err);
    PST_ASSERT(rc == 0 || err.code == rc);
    for (size_t i = 0; i < list.n && !rc; i++)
        PST_ASSERT(*list.at[i].key && list.at[i].bytes >= 0 && strlen(list.at[i].key) <= 8192);
    for (size_t i = 0; i < list.n; i++)
        pst_s3_key_problem(list.at[i].key);
    pst_s3_list_done(&list);
    free(next);
    char *code = s3_xml_value((const char *)data, size, "Code");
    PST_ASSERT(code && strlen(code) <= 8192);
    free(code);
    return 0;
}
