/* Checkpoints that are committed, kept and found again: what a manifest says, what a kill leaves, what is removed and what never is, and a learner that plants
 * links. The same beside a learner that runs: what is told, and what the next generation sees. */
#include "common/base/fs.h"
#include "lcm/supervisor/checkpoints.h"
#include "tests/unit/supervisor_world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct folder {
    char dir[128];
    char told[600]; /* of sup_checkpoint_newest */
} folder;

static folder open_one(void)
{
    folder f = {.dir = "/tmp/penstock-test-XXXXXX"};
    assert_non_null(mkdtemp(f.dir));
    return f;
}

static void close_one(folder *f)
{
    pst_fs_remove_tree(f->dir, NULL);
}

static void put(const folder *f, const char *name, const char *text)
{
    char path[400], *slash;
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    if ((slash = strrchr(path, '/')) > path + strlen(f->dir)) {
        *slash = '\0';
        assert_int_equal(pst_fs_mkdirs(path, 0755, NULL), 0);
        *slash = '/';
    }
    assert_int_equal(pst_fs_replace(path, text, strlen(text), 0644, NULL), 0);
}

static bool has(const folder *f, const char *name)
{
    char path[400];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    return lstat(path, &st) == 0;
}

static int commit(const folder *f, const char *name, double loss, int64_t time_us)
{
    pst_dbl_pair values[] = {{(char *)"loss", loss}};
    pst_err err = {0};
    int64_t bytes = 0;
    return sup_checkpoint_commit(f->dir, "learner-1", name, values, 1, time_us, &bytes, &err);
}

static void tell(void *arg, const char *name, const char *why)
{
    folder *f = arg;
    snprintf(f->told + strlen(f->told), sizeof f->told - strlen(f->told), "%s: %s; ", name, why);
}

/* Its name, "" = none. */
static const char *newest_of(folder *f, const char *process)
{
    static char name[300];
    f->told[0] = '\0';
    char *path = NULL;
    assert_int_equal(sup_checkpoint_newest(f->dir, process, tell, f, &path, &(pst_err){0}), 0);
    snprintf(name, sizeof name, "%s", path ? strrchr(path, '/') + 1 : "");
    free(path);
    return name;
}

static const char *newest(folder *f)
{
    return newest_of(f, "learner-1");
}

static void test_checkpoints_the_newest_that_is_what_was_committed(void **state)
{
    folder f = open_one();
    assert_string_equal(newest(&f), "");
    put(&f, "a.pt", "first");
    put(&f, "b/weights", "second");
    put(&f, "b/deep/er/optimizer", "state");
    put(&f, "c.pt", "third");
    put(&f, "d.pt", "never announced");
    assert_int_equal(commit(&f, "a.pt", 1, 100), 0);
    assert_int_equal(commit(&f, "b", 1, 200), 0);
    assert_int_equal(commit(&f, "c.pt", 1, 300), 0);
    assert_string_equal(newest(&f), "c.pt");
    put(&f, "c.pt", "thirt");             /* as long as it was */
    put(&f, "b/deep/er/more", "planted"); /* a file more */
    assert_string_equal(newest(&f), "a.pt");
    assert_non_null(strstr(f.told, "c.pt: c.pt is not what was committed"));
    assert_non_null(strstr(f.told, "b: it has 3 files, its manifest 2"));
    assert_true(has(&f, "c.pt.broken") && has(&f, "b.broken") && !has(&f, "c.pt"));
    assert_string_equal(newest(&f), "a.pt");
    assert_string_equal(f.told, "");
    put(&f, "a.pt", "");
    assert_string_equal(newest(&f), "");
    assert_true(has(&f, "d.pt"));
    close_one(&f);
}

static void test_checkpoints_half_a_manifest_is_none(void **state)
{
    folder f = open_one();
    put(&f, "a", "1");
    put(&f, "b", "2");
    assert_int_equal(commit(&f, "a", 1, 100), 0);
    put(&f, ".penstock/learner-1/.b.tmp", "{\"name\":\"b\""); /* killed before the rename */
    assert_string_equal(newest(&f), "a");
    put(&f, ".penstock/learner-1/b.json", "{\"name\":\"b\",\"time\":9"); /* a disk that lost it */
    put(&f, ".penstock/learner-1/...json", "{}");
    put(&f, ".penstock/learner-1/zz.json", "[]");
    assert_string_equal(newest(&f), "a");
    put(&f, "b", "2 once more");
    assert_int_equal(commit(&f, "b", 1, 200), 0);
    assert_string_equal(newest(&f), "b");
    close_one(&f);
}

static void test_checkpoints_the_last_and_the_best_are_kept(void **state)
{
    folder f = open_one();
    const double loss[] = {5, 1, 4, 2, NAN, 3};
    char name[8];
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "s%d", i);
        put(&f, name, name);
        assert_int_equal(commit(&f, name, loss[i], 100 + i), 0);
    }
    put(&f, "config.yml", "mine");
    assert_int_equal(sup_checkpoints_retain(f.dir, "learner-1", &(pst_checkpoint_rule){.asked = true}), 0); /* all */
    pst_checkpoint_rule rule = {.asked = true, .keep_last = 2, .keep_best = 2, .metric = (char *)"loss"};
    assert_int_equal(sup_checkpoints_retain(f.dir, "learner-1", &rule), 2);
    assert_true(has(&f, "s1") && has(&f, "s3") && has(&f, "s4") && has(&f, "s5") && has(&f, "config.yml"));
    assert_false(has(&f, "s0") || has(&f, "s2") || has(&f, ".penstock/learner-1/s0.json"));
    rule = (pst_checkpoint_rule){.asked = true, .keep_last = 1, .keep_best = 1, .metric = (char *)"loss", .max = true};
    assert_int_equal(sup_checkpoints_retain(f.dir, "learner-1", &rule), 3);
    assert_true(has(&f, "s5") && !has(&f, "s4")); /* the last one is the best by max, too */
    rule.metric = (char *)"accuracy";             /* that none has */
    assert_int_equal(sup_checkpoints_retain(f.dir, "learner-1", &rule), 0);
    assert_string_equal(newest(&f), "s5");
    close_one(&f);
}

static void test_checkpoints_no_link_is_followed(void **state)
{
    folder f = open_one(), other = open_one();
    char path[200], target[200];
    put(&other, "secret", "of somebody else");
    snprintf(path, sizeof path, "%s/link", f.dir);
    snprintf(target, sizeof target, "%s/secret", other.dir);
    assert_int_equal(symlink(target, path), 0);
    assert_true(commit(&f, "link", 1, 1) < 0);
    put(&f, "folder/in", "1");
    snprintf(path, sizeof path, "%s/folder/out", f.dir);
    assert_int_equal(symlink(other.dir, path), 0);
    assert_true(commit(&f, "folder", 1, 1) < 0);
    snprintf(path, sizeof path, "%s/.penstock", f.dir);
    pst_fs_remove_tree(path, NULL);
    assert_int_equal(symlink(other.dir, path), 0); /* where manifests would be written, read and removed */
    put(&f, "a", "1");
    assert_true(commit(&f, "a", 1, 1) < 0);
    put(&other, "secret.json", "{\"time\":1}");
    assert_string_equal(newest(&f), "");
    assert_int_equal(sup_checkpoints_retain(f.dir, "learner-1", &(pst_checkpoint_rule){.asked = true, .keep_last = 1}), 0);
    assert_true(has(&other, "secret") && has(&other, "secret.json") && !has(&other, "a.json"));
    assert_int_equal(mkfifo(strcat(strcpy(target, f.dir), "/pipe"), 0600), 0);
    assert_true(commit(&f, "pipe", 1, 1) < 0);
    const char *const bad[] = {"", "..", ".hidden", "../x", "a/b", "/etc/passwd", "nothing-there"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(commit(&f, bad[i], 1, 1) < 0);
    close_one(&f);
    close_one(&other);
}

static void commit_as(const folder *f, const char *process, const char *name)
{
    int64_t bytes = 0;
    put(f, name, name);
    assert_int_equal(sup_checkpoint_commit(f->dir, process, name, NULL, 0, 1, &bytes, &(pst_err){0}), 0);
}

/* Two learners of a gang on one node, each with shards of its own; one that never commits; and what both commit. */
static void test_checkpoints_of_a_gang_are_kept_apart(void **state)
{
    folder f = open_one();
    const pst_checkpoint_rule one = {.asked = true, .keep_last = 1};
    commit_as(&f, "learner-1", "step-1-r0");
    assert_string_equal(newest_of(&f, "learner-2"), "step-1-r0"); /* that commits for all */
    commit_as(&f, "learner-2", "step-1-r1");
    commit_as(&f, "learner-1", "step-2-r0");
    commit_as(&f, "learner-2", "step-2-r1");
    assert_int_equal(sup_checkpoints_retain(f.dir, "learner-1", &one), 1);
    assert_int_equal(sup_checkpoints_retain(f.dir, "learner-2", &one), 1);
    assert_true(has(&f, "step-2-r0") && has(&f, "step-2-r1") && !has(&f, "step-1-r0") && !has(&f, "step-1-r1"));
    assert_string_equal(newest_of(&f, "learner-1"), "step-2-r0");
    assert_string_equal(newest_of(&f, "learner-2"), "step-2-r1");
    assert_string_equal(newest_of(&f, "learner-3"), "");
    commit_as(&f, "learner-1", "both");
    commit_as(&f, "learner-2", "both");
    commit_as(&f, "learner-1", "step-3-r0");
    assert_int_equal(sup_checkpoints_retain(f.dir, "learner-1", &one), 2);
    assert_true(has(&f, "both"));
    assert_string_equal(newest_of(&f, "learner-2"), "both");
    commit_as(&f, "learner-2", "step-3-r1");
    assert_int_equal(sup_checkpoints_retain(f.dir, "learner-2", &one), 2);
    assert_true(!has(&f, "both") && has(&f, "step-3-r0") && has(&f, "step-3-r1"));
    close_one(&f);
}

static void test_checkpoints_the_last_is_the_newest_whatever_the_clock_says(void **state)
{
    folder f = open_one();
    put(&f, "z", "1");
    put(&f, "a", "2");
    assert_int_equal(commit(&f, "z", 1, 2000), 0);
    assert_int_equal(commit(&f, "a", 1, 1000), 0);
    assert_string_equal(newest(&f), "a");
    assert_int_equal(sup_checkpoints_retain(f.dir, "learner-1", &(pst_checkpoint_rule){.asked = true, .keep_last = 1}), 1);
    assert_true(has(&f, "a") && !has(&f, "z"));
    assert_int_equal(commit(&f, "a", 1, 500), 0); /* once more under its name */
    assert_string_equal(newest(&f), "a");
    close_one(&f);
}

/* No descriptor is left for some of the files: nothing is known about the checkpoint, so it stays what it is. */
static void test_checkpoints_no_descriptors_is_no_damage(void **state)
{
    folder f = open_one();
    struct rlimit was;
    int failed = 0;
    put(&f, "a/deep/er/weights", "1");
    assert_int_equal(commit(&f, "a", 1, 1), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    int first = dup(0);
    close(first);
    for (int room = 0; room < 12; room++) {
        char *path = NULL;
        pst_err err = {0};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)(first + room), was.rlim_max}), 0);
        int rc = sup_checkpoint_newest(f.dir, "learner-1", tell, &f, &path, &err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        assert_true(rc < 0 ? !path : path != NULL);
        assert_true(rc == 0 || strstr(err.text, "Too many open files"));
        failed += rc < 0;
        free(path);
    }
    assert_in_range(failed, 3, 11);
    assert_string_equal(f.told, "");
    assert_string_equal(newest(&f), "a");
    close_one(&f);
}

/* Sparse: it takes no room, and only what is read of it would cost something. */
static void put_hole(const folder *f, const char *name, off_t bytes)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    put(f, name, "");
    assert_int_equal(truncate(path, bytes), 0);
}

/* A learner that plants manifests by hard links, or folders without end, costs neither memory nor time: it is refused aloud. */
static void test_checkpoints_what_is_too_much_is_refused(void **state)
{
    folder f = open_one();
    char path[300], other[300];
    int64_t bytes = 0;
    pst_err err = {0};
    put(&f, "a", "1");
    assert_int_equal(commit(&f, "a", 1, 1), 0);
    put_hole(&f, ".penstock/learner-1/big.json", 7 << 20);
    snprintf(path, sizeof path, "%s/.penstock/learner-1/big.json", f.dir);
    for (int i = 0; i < 40; i++) {
        snprintf(other, sizeof other, "%s/.penstock/learner-1/big%d.json", f.dir, i);
        assert_int_equal(link(path, other), 0);
    }
    assert_true(sup_checkpoint_commit(f.dir, "learner-1", "a", NULL, 0, 1, &bytes, &err) < 0);
    assert_non_null(strstr(err.text, "more than 256 MiB"));
    char *found = NULL;
    assert_true(sup_checkpoint_newest(f.dir, "learner-1", tell, &f, &found, &(pst_err){0}) < 0);
    assert_true(!found && has(&f, "a") && !*f.told);
    put(&f, "empty/x", "1");
    snprintf(path, sizeof path, "%s/empty/x", f.dir);
    for (int i = 0; i < 10001; i++) { /* names of one file: the disk has nothing to do when they are synced */
        snprintf(other, sizeof other, "%s/empty/%d", f.dir, i);
        assert_int_equal(link(path, other), 0);
    }
    err = (pst_err){0};
    assert_true(sup_checkpoint_commit(f.dir, "learner-2", "empty", NULL, 0, 1, &bytes, &err) < 0);
    assert_non_null(strstr(err.text, "more than 10000 files and folders"));
    close_one(&f);
}

/* As before processes had folders of their own, and manifests numbers: a bucket, or a job that was halted, may hold them still. */
static void test_checkpoints_of_an_older_version_are_gone_on_from(void **state)
{
    folder f = open_one();
    static const char manifest[] = "{\"name\":\"%s\",\"time\":%d,\"values\":{},\"files\":[{\"path\":\"%s\",\"bytes\":1,\"sha256\":"
                                   "\"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b\"}]}";
    static const char *const names[] = {"z", "y", "x"}; /* of "1" */
    for (int i = 0; i < 3; i++) {
        char text[300], path[60];
        snprintf(text, sizeof text, manifest, names[i], i + 1, names[i]);
        snprintf(path, sizeof path, ".penstock/%s.json", names[i]);
        put(&f, names[i], i == 2 ? "2" : "1"); /* the last is not what was committed */
        put(&f, path, text);
    }
    assert_string_equal(newest_of(&f, "learner-2"), "y");
    assert_non_null(strstr(f.told, "x: x is not what was committed"));
    assert_true(has(&f, "x.broken") && !has(&f, "x"));
    put(&f, "new", "3");
    assert_int_equal(commit(&f, "new", 1, 1), 0);
    assert_string_equal(newest(&f), "new");
    assert_string_equal(newest_of(&f, "learner-2"), "new"); /* of the one that commits */
    close_one(&f);
}

/* ---- beside a learner ------------------------------------------------------------------------------------------------------------ */

#define SAVE(name, loss)                                                                             \
    "echo " name " >$CHECKPOINT_DIR/" name "; echo '{\"penstock\":\"metrics\",\"loss\":" loss "}'; " \
    "echo '{\"penstock\":\"checkpoint\",\"file\":\"" name "\",\"step\":1}'; sleep 0.2; "

static const char *detail(const pst_process_report *r, const char *key)
{
    const char *v = pst_str_map_get(r->details, r->n_details, key);
    return v ? v : "";
}

static void test_checkpoints_are_told_once_they_are_committed(void **state)
{
    world *w = *state;
    world_run(
        w,
        SAVE("one", "3") SAVE("two", "1") SAVE("three", "2")
            SAVE("four",
                 "9") "echo '{\"penstock\":\"checkpoint\",\"step\":9}'; "
                      "echo '{\"penstock\":\"checkpoint\",\"file\":\"../../x\"}'; echo '{\"penstock\":\"checkpoint\",\"file\":\"absent\"}'",
        "penstock: {checkpoint: {keep_last: 1, keep_best: 1, metric: loss}}\n", NULL);
    const pst_process_report *last = NULL;
    for (size_t i = 0; i < w->n_reports; i++)
        if (w->reports[i].type == PST_REPORT_TYPE_CHECKPOINT)
            last = &w->reports[i];
    assert_non_null(last);
    assert_string_equal(detail(last, "file"), "four");
    assert_string_equal(detail(last, "bytes"), "5");
    assert_non_null(world_line(w, "a checkpoint line without `file`"));
    assert_non_null(world_line(w, "a checkpoint line names \"../../x\""));
    assert_non_null(world_line(w, "a checkpoint was not committed: absent"));
    folder f = {0};
    snprintf(f.dir, sizeof f.dir, "%s/jobs/training-unit/checkpoints", w->dir);
    assert_true(has(&f, "four") && has(&f, "two") && !has(&f, "one") && !has(&f, "three"));
    put(&f, "four", "FOUR\n"); /* and the next generation is told of the one before */
    world_run(w, "echo goes on from ${PENSTOCK_CHECKPOINT##*/}", "penstock: {checkpoint: {keep_last: 1}}\n", NULL);
    assert_non_null(world_line(w, "checkpoint four cannot be gone on from"));
    assert_non_null(world_line(w, "goes on from two"));
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoints_the_newest_that_is_what_was_committed),
        cmocka_unit_test(test_checkpoints_half_a_manifest_is_none),
        cmocka_unit_test(test_checkpoints_the_last_and_the_best_are_kept),
        cmocka_unit_test(test_checkpoints_no_link_is_followed),
        cmocka_unit_test(test_checkpoints_of_a_gang_are_kept_apart),
        cmocka_unit_test(test_checkpoints_what_is_too_much_is_refused),
        cmocka_unit_test(test_checkpoints_of_an_older_version_are_gone_on_from),
        cmocka_unit_test(test_checkpoints_the_last_is_the_newest_whatever_the_clock_says),
        cmocka_unit_test(test_checkpoints_no_descriptors_is_no_damage),
        RUN(test_checkpoints_are_told_once_they_are_committed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
