/* test_cuda_devices.c - what is missing of driver, device and plug-in is told apart, each with its cure: by a simulated driver, and with every
 * call of it failing. */
#include "engine/cuda/devices.h"
#include "engine/cuda/events.h"
#include "engine/cuda/plugin.h"
#include "tests/unit/cuda_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char no_driver[] = "libcuda.so.1: cannot open shared object file", no_plugin[] = "the plug-in is not beside the program";
static const eng_cuda_plugin plugin_13 = {.abi = ENG_CUDA_PLUGIN_ABI, .cuda = 13000, .version = "1", .targets = ""},
                             plugin_12 = {.abi = ENG_CUDA_PLUGIN_ABI, .cuda = 12040, .version = "1", .targets = ""};
static const cuda_sim_device h200 = {"NVIDIA H200", 9, 0, (size_t)141 << 30, (size_t)140 << 30},
                             t4 = {"Tesla T4", 7, 5, (size_t)16 << 30, (size_t)15 << 30};

static void is(const pst_cuda_devices *d, pst_cuda_state state, const char *why, const char *cure)
{
    if (d->state != state || !strstr(d->why, why) || !strstr(d->cure, cure) || (!*cure && *d->cure) ||
        (*cure && !strstr(d->cure, "; in this version a GPU computes models of one tree ensemble or of dense layers, and no others")))
        fail_msg("state %d \"%s\" \"%s\" for %d \"%s\" \"%s\"", d->state, d->why, d->cure, state, why, cure);
    assert_int_equal(cuda_sim_state.open, 0);
}

static void test_no_driver(void **state)
{
    pst_cuda_devices d;
    eng_cuda_devices(NULL, no_driver, NULL, "", &d);
    is(&d, PST_CUDA_NO_DRIVER, "no NVIDIA driver (libcuda.so.1: cannot", "install NVIDIA's driver");
    assert_int_equal(d.n, 0);
    assert_string_equal(d.driver, "");
}

static void test_driver_too_old(void **state)
{
    pst_cuda_devices d;
    cuda_sim_state = (cuda_sim){.cuda = 12020, .version = "535.261.03", .n = 1, .device = {h200}};
    eng_cuda_devices(&cuda_sim_driver, "", &plugin_13, "", &d);
    is(&d, PST_CUDA_DRIVER_OLD, "(535.261.03, CUDA 12.2) is too old: CUDA 13 is needed", "driver 580 or newer");
    eng_cuda_devices(&cuda_sim_driver, "", NULL, no_plugin, &d); /* the first that is missing is told: the driver, not the plug-in */
    is(&d, PST_CUDA_DRIVER_OLD, "too old", "580");
    eng_cuda_devices(&cuda_sim_driver, "", &plugin_12, "", &d); /* a plug-in of CUDA 12.4 runs on every driver of CUDA 12 */
    is(&d, PST_CUDA_USABLE, "", "");
    cuda_sim_state.cuda = 11080;
    eng_cuda_devices(&cuda_sim_driver_no_nvml, "", &plugin_12, "", &d);
    is(&d, PST_CUDA_DRIVER_OLD, "(CUDA 11.8, CUDA 11.8) is too old: CUDA 12 is needed", "driver 525 or newer");
}

static void test_no_device(void **state)
{
    pst_cuda_devices d;
    cuda_sim_state = (cuda_sim){.cuda = 13000, .version = "580.65.06"};
    eng_cuda_devices(&cuda_sim_driver, "", &plugin_13, "", &d);
    is(&d, PST_CUDA_NO_DEVICE, "the NVIDIA driver (580.65.06) is there, but no device", "--gpus all");
    cuda_sim_state.init_error = 100;
    eng_cuda_devices(&cuda_sim_driver, "", &plugin_13, "", &d);
    is(&d, PST_CUDA_NO_DEVICE, "but no device", "CUDA_VISIBLE_DEVICES");
    cuda_sim_state.init_error = 803;
    eng_cuda_devices(&cuda_sim_driver, "", &plugin_13, "", &d);
    is(&d, PST_CUDA_NO_DRIVER, "does not start: system has unsupported display driver / cuda driver combination (803)", "restart");
}

static void test_device_too_old(void **state)
{
    pst_cuda_devices d;
    char room[200];
    cuda_sim_state = (cuda_sim){.cuda = 13010, .version = "590.1", .n = 1, .device = {t4}};
    eng_cuda_devices(&cuda_sim_driver, "", &plugin_13, "", &d);
    is(&d, PST_CUDA_DEVICE_OLD, "too old: cuda:0, Tesla T4, has compute capability 7.5", "8.0 or newer");
    cuda_sim_state.n = 2;
    cuda_sim_state.device[1] = h200;
    eng_cuda_devices(&cuda_sim_driver, "", &plugin_13, "", &d);
    is(&d, PST_CUDA_USABLE, "", "");
    assert_int_equal(d.n, 2);
    assert_int_equal(d.list[0].state, PST_CUDA_DEVICE_OLD);
    assert_non_null(strstr(pst_cuda_device_why(&d, &d.list[0], room, sizeof room), "Tesla T4"));
    assert_string_equal(pst_cuda_device_cure(&d, &d.list[0]), "use another");
    assert_string_equal(pst_cuda_device_why(&d, &d.list[1], room, sizeof room), "");
}

static void test_plugin_missing(void **state)
{
    pst_cuda_devices d;
    cuda_sim_state = (cuda_sim){.cuda = 13000, .version = "580.65.06", .n = 1, .device = {h200}};
    eng_cuda_devices(&cuda_sim_driver, "", NULL, no_plugin, &d);
    is(&d, PST_CUDA_NO_PLUGIN, "driver and device are there, but the plug-in is not beside the program", "quickstart build --cuda");
}

static void test_what_is_told_of_a_device(void **state)
{
    pst_cuda_devices d;
    cuda_sim_state = (cuda_sim){.cuda = 13000, .version = "580.65.06", .n = 1, .device = {h200}, .ecc = 3};
    eng_cuda_devices(&cuda_sim_driver, "", &plugin_13, "", &d);
    assert_string_equal(d.driver, "580.65.06");
    assert_int_equal(d.n, 1);
    assert_string_equal(d.list[0].name, "NVIDIA H200");
    assert_int_equal(d.list[0].major * 10 + d.list[0].minor, 90);
    assert_int_equal(d.list[0].memory_bytes, (int64_t)141 << 30);
    assert_int_equal(d.list[0].free_bytes, (int64_t)140 << 30);
    assert_int_equal(d.list[0].ecc_errors, 3);
    eng_cuda_devices(&cuda_sim_driver_no_nvml, "", &plugin_13, "", &d);
    assert_string_equal(d.driver, "CUDA 13.0");
    assert_int_equal(d.list[0].free_bytes, -1);
    assert_int_equal(d.list[0].ecc_errors, -1);
}

/* Whatever call fails: an answer, closed again, and never a device that could be used and is not known to be new enough. */
static void test_every_call_fails(void **state)
{
    pst_cuda_devices d;
    cuda_sim_state = (cuda_sim){.cuda = 13000, .version = "580.65.06", .n = 2, .device = {h200, h200}};
    eng_cuda_devices(&cuda_sim_driver, "", &plugin_13, "", &d);
    int calls = cuda_sim_state.calls;
    assert_true(calls > 15);
    for (int i = 1; i <= calls; i++) {
        cuda_sim_state.calls = 0;
        cuda_sim_state.fail_at = i;
        eng_cuda_devices(&cuda_sim_driver, "", &plugin_13, "", &d);
        assert_int_equal(cuda_sim_state.open, 0);
        assert_true(*d.driver);
        bool any = false;
        for (int k = 0; k < d.n; k++) {
            assert_true(*d.list[k].name);
            assert_int_equal(d.list[k].state, d.list[k].major == 9 ? PST_CUDA_USABLE : PST_CUDA_DEVICE_OLD);
            any |= d.list[k].state == PST_CUDA_USABLE;
        }
        assert_int_equal(any, d.state == PST_CUDA_USABLE);
        assert_int_equal(any, !*d.why);
    }
}

/* ---- what devices tell by themselves ---- */

static void begin_events(void)
{
    cuda_sim_state = (cuda_sim){.cuda = 13000,
                                .version = "580.65.06",
                                .n = 2,
                                .device = {h200, h200},
                                .events = {{1, ENG_NVML_XID, 79},
                                           {1, ENG_NVML_ECC_DOUBLE, 0}, /* which it does not tell */
                                           {0, ENG_NVML_ECC_DOUBLE, 0},
                                           {0, ENG_NVML_ECC_SINGLE, 0}}};
}

static void test_events_are_told(void **state)
{
    static const pst_cuda_event want[] = {{1, PST_CUDA_XID, 79}, {0, PST_CUDA_ECC_UNCORRECTED, 0}, {0, PST_CUDA_ECC_CORRECTED, 0}};
    pst_cuda_event e;
    begin_events();
    eng_cuda_watch *w = eng_cuda_watch_open(&cuda_sim_driver);
    assert_non_null(w);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(eng_cuda_watch_next(w, 10, &e), 1);
        assert_true(e.number == want[i].number && e.kind == want[i].kind && e.code == want[i].code);
    }
    assert_int_equal(eng_cuda_watch_next(w, 10, &e), 0);
    eng_cuda_watch_close(w);
    assert_int_equal(cuda_sim_state.open + cuda_sim_state.event_sets, 0);
    assert_string_equal(pst_cuda_event_word(PST_CUDA_XID), "xid");
    assert_non_null(strstr(pst_cuda_event_says(&want[0]), "fallen off the bus"));
    assert_non_null(strstr(pst_cuda_event_says(&want[1]), "could not be corrected"));
    assert_non_null(strstr(pst_cuda_event_says(&(pst_cuda_event){0, PST_CUDA_XID, 4711}), "NVIDIA's list"));
    assert_null(eng_cuda_watch_open(&cuda_sim_driver_no_nvml));
}

/* Whatever call fails: what was taken is given back, and nothing is told that did not happen. */
static void test_events_survive_every_failure(void **state)
{
    int calls = 0, none = 0, ended = 0;
    for (int at = 0; at <= calls; at++) {
        pst_cuda_event e;
        int told = 0, rc = 1;
        begin_events();
        cuda_sim_state.fail_at = at;
        eng_cuda_watch *w = eng_cuda_watch_open(&cuda_sim_driver);
        while (w && (rc = eng_cuda_watch_next(w, 0, &e)) > 0)
            told++;
        none += !w;
        ended += rc < 0;
        assert_true(told <= 3 && (at || told == 3));
        if (w)
            eng_cuda_watch_close(w);
        assert_int_equal(cuda_sim_state.open + cuda_sim_state.event_sets, 0);
        if (!at)
            calls = cuda_sim_state.calls;
    }
    assert_true(calls > 15 && none >= 4 && ended == 4); /* of four waits each one fails once */
}

/* A process's own thread: that of this program, started anew where the simulated driver is the host's. */
static int tell_an_event(void)
{
    pst_cuda_event e;
    pst_cuda_events_begin();
    pst_cuda_events_begin(); /* once */
    for (int i = 0; i < 1000; i++) {
        if (pst_cuda_events_next(&e))
            return e.number == 0 && e.kind == PST_CUDA_XID && e.code == 94 && !pst_cuda_events_next(&e) ? 0 : 2;
        usleep(10000);
    }
    return 3;
}

static void test_events_come_by_a_thread(void **state)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        setenv("LD_LIBRARY_PATH", PST_TEST_SIM, 1);
        setenv("PENSTOCK_SIM_CUDA", "13000 9.0", 1);
        setenv("PENSTOCK_SIM_XID", "94", 1);
        execl("/proc/self/exe", "test_cuda_devices", "--tell-an-event", (char *)NULL);
        _exit(4);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Of files: none, one that is no library, one of another version; and one of ours. */
static void test_plugin_files(void **state)
{
    char why[320] = "", path[1200];
    assert_null(eng_cuda_plugin_open("/nonexistent/" ENG_CUDA_PLUGIN, why, sizeof why));
    assert_non_null(strstr(why, "is not beside the program"));
    assert_null(eng_cuda_plugin_open("/proc/self/cmdline", why, sizeof why));
    assert_non_null(strstr(why, "does not open"));
    static const struct {
        const char *file, *why;
    } cases[] = {{"cuda_plugin_foreign.so", "belongs to another version"},
                 {"cuda_plugin_abi.so", "belongs to another version"},
                 {"cuda_plugin_older.so", "belongs to penstock 0.0.9, this is " PST_VERSION},
                 {"cuda_plugin_ours.so", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(path, sizeof path, "%s/%s", PST_TEST_PLUGINS, cases[i].file);
        const eng_cuda_plugin *p = eng_cuda_plugin_open(path, why, sizeof why);
        if (!cases[i].why != !!p || (!p && !strstr(why, cases[i].why)))
            fail_msg("%s: %s", cases[i].file, why);
        if (p)
            assert_int_equal(p->cuda, 13000);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--tell-an-event"))
        return tell_an_event();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_driver_too_old),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_device_too_old),
        cmocka_unit_test(test_plugin_missing),
        cmocka_unit_test(test_what_is_told_of_a_device),
        cmocka_unit_test(test_every_call_fails),
        cmocka_unit_test(test_plugin_files),
        cmocka_unit_test(test_events_are_told),
        cmocka_unit_test(test_events_survive_every_failure),
        cmocka_unit_test(test_events_come_by_a_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
