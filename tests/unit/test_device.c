/* test_device.c - `device: cuda` where it cannot be had: refused with what is missing and its cure, exit status 2. What is missing is
 * test_cuda_devices's matter. */
#include "engine/cuda/devices.h"
#include "inference/run/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void refused(const char *device, const pst_cuda_devices *d, const char *want, const char *cure)
{
    pst_err err = {0};
    assert_int_equal(score_device_check_of(device, d, &err), PST_EINVAL);
    if (!strstr(err.text, want) || !strstr(err.text, cure) || !strstr(err.text, "use device: cpu or device: auto"))
        fail_msg("%s: %s", device, err.text);
    assert_int_equal(pst_err_exit(&err), 2);
}

static void refused_without(const char *device, const pst_cuda_devices *d, const char *want, const char *not_cure)
{
    pst_err err = {0};
    refused(device, d, want, "");
    score_device_check_of(device, d, &err);
    if (strstr(err.text, not_cure))
        fail_msg("%s: %s", device, err.text);
}

static void test_a_device_that_cannot_be_had_is_refused(void **state)
{
    const pst_cuda_devices none = {.state = PST_CUDA_NO_DRIVER, .why = "there is no NVIDIA driver", .cure = "install one"};
    refused("cuda", &none, "device: cuda cannot be had here: there is no NVIDIA driver; use device: cpu or device: auto; or install one",
            "");
    refused("cuda:3", &none, "device: cuda:3 cannot be had here: there is no NVIDIA driver", "");
    pst_cuda_devices two = {.state = PST_CUDA_NO_PLUGIN,
                            .why = "no plug-in",
                            .cure = "build it",
                            .n = 2,
                            .list = {{.number = 0, .major = 7, .minor = 5, .name = "Tesla T4", .state = PST_CUDA_DEVICE_OLD},
                                     {.number = 1, .major = 9, .name = "H200", .state = PST_CUDA_NO_PLUGIN}}};
    refused("cuda", &two, "no plug-in", "build it");
    refused_without("cuda:0", &two, "Tesla T4", "another"); /* the other lacks something, too */
    refused("cuda:1", &two, "no plug-in", "build it");
    refused_without("cuda:2", &two, "there is no device 2, only 2 of them", "penstock devices");
}

static void test_a_device_that_can_be_had_is_taken(void **state)
{
    const pst_cuda_devices two = {
        .state = PST_CUDA_USABLE, .n = 2, .list = {{.number = 0, .state = PST_CUDA_DEVICE_OLD}, {.number = 1, .state = PST_CUDA_USABLE}}};
    assert_int_equal(score_device_check_of("cuda", &two, NULL), 0);
    assert_int_equal(score_device_check_of("cuda:1", &two, NULL), 0);
    refused("cuda:0", &two, "too old", "use another");
    refused("cuda:2", &two, "there is no device 2", "penstock devices");
}

static void test_the_cpu_needs_nothing(void **state)
{
    assert_int_equal(pst_score_device_check("auto", NULL), 0);
    assert_int_equal(pst_score_device_check("cpu", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_device_that_cannot_be_had_is_refused),
        cmocka_unit_test(test_a_device_that_can_be_had_is_taken),
        cmocka_unit_test(test_the_cpu_needs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
