/* test_device.c - `device: cuda` where it cannot be had: what is missing is told apart, each with its cure. */
#include "common/base/fs.h"
#include "inference/run/device.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *file(const char *dir, const char *name, const char *text)
{
    char *path = pst_fs_join(dir, name);
    assert_int_equal(pst_fs_write_atomic(path, text, strlen(text), 0600, NULL), 0);
    return path;
}

static void test_device_tells_apart_what_is_missing(void **state)
{
    char dir[] = "/tmp/pst-device-XXXXXX", empty[] = "/tmp/pst-device-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_non_null(mkdtemp(empty));
    char *none = pst_fs_join(dir, "none"), *plugin = file(dir, "plugin.so", "x"), *node = file(dir, "nvidia0", ""),
         *ctl = file(dir, "nvidiactl", "");
    char *new =
        file(dir, "new", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12.2.0\n");
    char *open = file(dir, "open", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\n");
    char *old = file(dir, "old", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021\n");
    const struct {
        const char *device, *driver, *nodes, *plugin, *want;
    } cases[] = {
        {"cuda", none, empty, plugin, "no NVIDIA driver on this host; install"},
        {"cuda:0", none, empty, plugin, "device: cuda:0 cannot be had here: there is no NVIDIA driver"},
        {"cuda", old, dir, plugin, "driver 470.57 is too old; install version 525"},
        {"cuda", new, empty, plugin, "no device (/dev/nvidia0 …)"},
        {"cuda:3", open, dir, plugin, "there is no device 3, only 1 of them"},
        {"cuda:0", open, dir, none, "plug-in libpenstock-cuda.so is not beside the program"},
        {"cuda", none, dir, none, "plug-in"}, /* a container shows the nodes alone */
        {"cuda", new, dir, plugin, "plug-in"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_err err = {0};
        score_device_places at = {cases[i].driver, cases[i].nodes, cases[i].plugin};
        assert_int_equal(score_device_check_at(cases[i].device, &at, &err), PST_EINVAL);
        if (!strstr(err.text, cases[i].want) || !strstr(err.text, "device: cpu or device: auto"))
            fail_msg("case %zu: %s", i, err.text);
        assert_int_equal(pst_err_exit(&err), 2);
    }
    score_device_places nothing = {none, empty, none};
    assert_int_equal(score_device_check_at("auto", &nothing, NULL), 0);
    assert_int_equal(score_device_check_at("cpu", &nothing, NULL), 0);
    char *paths[] = {none, plugin, node, ctl, new, open, old};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        remove(paths[i]);
        free(paths[i]);
    }
    remove(dir);
    remove(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_device_tells_apart_what_is_missing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
