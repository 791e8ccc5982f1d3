/* /proc as other computers have it: read, turned into rates; the sliding window. */
#include "producers/sources/proc_stat.h"

#include "common/base/fs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char dir[64];

static int make_dir(void **state)
{
    strcpy(dir, "/tmp/source-proc-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    return pst_fs_remove_tree(dir, NULL);
}

static void put(const char *name, const char *text)
{
    char *path = pst_fs_join(dir, name), *folder = pst_strdup(path);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(pst_fs_mkdirs(folder, 0755, NULL), 0);
    assert_int_equal(pst_fs_write_atomic(path, text, strlen(text), 0644, NULL), 0);
    free(path);
    free(folder);
}

static void computer(const char *cpu, const char *sectors, const char *bytes)
{
    char *stat =
        pst_sprintf("cpu  %s\ncpu0 1 2 3 4 5 6 7 8 9 0\nintr 1000 1 2 3\nctxt 5000\nbtime 1\nprocs_running 3\nprocs_blocked 1\n", cpu);
    char *disks = pst_sprintf("   7       0 loop0 9 9 999 9 9 9 999 9 9 9 9\n 259       0 nvme0n1 10 0 %s 5 20 0 400 7 0 1 1 0 0 0 0\n"
                              " 259       1 nvme0n1p1 10 0 77777 5 20 0 77777 7 0 1 1\n",
                              sectors);
    char *net = pst_sprintf("Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n"
                            "  eth0:%s 30 0 0 0 0 0 0 700 18 0 0 0 0 0 0\nwlan0: 50 1 0 0 0 0 0 0 60 1 0 0 0 0 0 0\n",
                            bytes);
    put("stat", stat);
    put("loadavg", "1.25 0.5 0.25 1/100 4242\n");
    put("meminfo",
        "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    400 kB\nBuffers: 3 kB\nCached:          250 kB\nSwapCached: 7 kB\n");
    put("diskstats", disks);
    put("net/dev", net);
    put("sys/block/nvme0n1/size", "1");
    free(stat);
    free(disks);
    free(net);
}

static void test_proc_numbers_are_those_of_the_files(void **state)
{
    source_proc_sample a, b;
    source_proc_rates r;
    pst_err err = {0};
    computer("100 10 50 1000 20 5 5 0 0 0", "1000", "2000");
    assert_int_equal(source_proc_read(dir, 0, &a, &err), 0);
    assert_true(a.user == 110 && a.system == 60 && a.idle == 1000 && a.iowait == 20);
    assert_true(a.context_switches == 5000 && a.interrupts == 1000 && a.running == 3 && a.blocked == 1 && a.load1 == 1.25);
    assert_true(a.memory_total == 1000 && a.memory_available == 400 && a.memory_cached == 250);
    assert_true(a.has_disk && a.sectors_read == 1000 && a.sectors_written == 400); /* neither loop nor the partition */
    assert_true(a.has_network && a.rx_bytes == 2050 && a.tx_bytes == 760);         /* not lo */
    computer("150 10 70 1025 25 5 5 0 0 0", "1500", "1000");
    assert_int_equal(source_proc_read(dir, 500000, &b, &err), 0);
    source_proc_rates_of(&a, &b, &r);
    assert_true(fabs(r.user - 0.5) < 1e-9 && fabs(r.system - 0.2) < 1e-9 && fabs(r.idle - 0.25) < 1e-9 && fabs(r.iowait - 0.05) < 1e-9);
    assert_true(r.sectors_read == 1000 && r.sectors_written == 0);
    assert_true(r.rx_bytes == 0); /* a counter that fell: an interface came anew */
}

static void test_proc_without_disks_and_networks(void **state)
{
    source_proc_sample s;
    pst_err err = {0};
    put("stat", "cpu  1 2 3 4\nctxt 1\n");
    put("loadavg", "");
    put("meminfo", "");
    assert_int_equal(source_proc_read(dir, 0, &s, &err), 0);
    assert_false(s.has_disk || s.has_network);
    put("stat", "no such thing\n");
    assert_int_equal(source_proc_read(dir, 0, &s, &err), PST_EPARSE);
}

static void test_real_proc_adds_up(void **state)
{
    source_proc_sample s;
    pst_err err = {0};
    assert_int_equal(source_proc_read("/proc", 0, &s, &err), 0);
    assert_true(s.user + s.system + s.idle > 0 && s.memory_total > s.memory_available && s.running >= 1 && s.context_switches > 0);
}

static void test_window_slides(void **state)
{
    source_proc_window *w = calloc(1, sizeof *w);
    source_proc_sample from;
    w->window_us = 500;
    for (int64_t t = 0; t < 100000; t += 20) {
        bool full = source_proc_window_add(w, &(source_proc_sample){.mono_us = t, .user = (double)t}, &from);
        assert_int_equal(full, t >= 500);
        if (full)
            assert_true(from.mono_us == t - 500 || from.mono_us == t - 520 + t % 20);
    }
    assert_true(w->n <= 30);
    w->window_us = 1000000; /* longer than the ring holds: the oldest there is */
    bool full = false;
    for (int64_t t = 100000; !full; t += 20)
        full = source_proc_window_add(w, &(source_proc_sample){.mono_us = t}, &from);
    assert_int_equal(w->n, PST_PROC_WINDOW_MAX);
    free(w);
}

/* The clock goes on where CPU time does not: a process that was put aside between the two, a guest that its host held. Shares need a tick. */
static void test_window_waits_for_a_tick(void **state)
{
    static const struct {
        int64_t at;
        double user, idle;
        int64_t from; /* of the sample that is compared with; -1: none yet */
    } steps[] = {{0, 5, 7, -1},   {60, 5, 7, -1},  {62, 5, 7, -1},   {70, 5, 8, 0},    {110, 5, 9, 60},
                 {180, 5, 9, 70}, {240, 5, 9, 70}, {300, 6, 8, 240}, {360, 6, 9, 300}, {420, 6, 10, 360}};
    source_proc_window *w = calloc(1, sizeof *w);
    w->window_us = 50;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        source_proc_sample from = {.mono_us = -1}, s = {.mono_us = steps[i].at, .user = steps[i].user, .idle = steps[i].idle};
        source_proc_rates r;
        bool full = source_proc_window_add(w, &s, &from);
        assert_int_equal(from.mono_us, steps[i].from);
        assert_int_equal(full, steps[i].from >= 0);
        source_proc_rates_of(&from, &s, &r);
        assert_true(!full || fabs(r.user + r.system + r.iowait + r.idle - 1) < 1e-9);
    }
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_proc_numbers_are_those_of_the_files, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_proc_without_disks_and_networks, make_dir, drop_dir),
        cmocka_unit_test(test_real_proc_adds_up),
        cmocka_unit_test(test_window_slides),
        cmocka_unit_test(test_window_waits_for_a_tick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
