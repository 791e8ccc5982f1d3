/* fuzz_archive.c - submitted code comes from strangers: whatever the bytes, nothing is written outside of the folder, nothing crashes. */
#include "common/base/fs.h"
#include "common/objects/objects.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char dir[] = "/tmp/pst-fuzz-archive-XXXXXX";
    pst_err err = {0};
    struct stat st;
    if (!mkdtemp(dir))
        return 0;
    char *inside = pst_fs_join(dir, "a"), *outside = pst_fs_join(dir, "evil");
    int rc = pst_archive_unpack(data, size, inside, &err);
    PST_ASSERT(lstat(outside, &st) < 0);
    PST_ASSERT(rc == 0 || err.code < 0);
    pst_fs_remove_tree(dir, NULL);
    free(inside);
    free(outside);
    return 0;
}
