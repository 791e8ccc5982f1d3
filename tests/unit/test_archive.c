/* test_archive.c - users' archives: what they may not do, and that a packed folder comes back. */
#include "common/base/fs.h"
#include "common/objects/objects.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct item {
    const char *name;
    unsigned type; /* AE_IF…; 0 = hard link to link */
    const char *link;
    size_t zeros; /* content: that many zero bytes, else the name */
    int mode;
} item;

static void build(const char *format, const item *items, size_t n, pst_buf *ret)
{
    size_t cap = 8 << 20, used = 0;
    char *mem = malloc(cap);
    struct archive *a = archive_write_new();
    if (!strcmp(format, "zip"))
        archive_write_set_format_zip(a);
    else
        archive_write_set_format_gnutar(a);
    if (!strcmp(format, "tgz"))
        archive_write_add_filter_gzip(a);
    assert_int_equal(archive_write_open_memory(a, mem, cap, &used), ARCHIVE_OK);
    for (size_t i = 0; i < n; i++) {
        struct archive_entry *e = archive_entry_new();
        archive_entry_set_pathname(e, items[i].name);
        archive_entry_set_perm(e, items[i].mode ? items[i].mode : 0644);
        size_t size = 0;
        if (!items[i].type) {
            archive_entry_set_filetype(e, AE_IFREG);
            archive_entry_set_hardlink(e, items[i].link);
        } else {
            archive_entry_set_filetype(e, items[i].type);
            if (items[i].type == AE_IFLNK)
                archive_entry_set_symlink(e, items[i].link);
            if (items[i].type == AE_IFREG)
                size = items[i].zeros ? items[i].zeros : strlen(items[i].name);
        }
        archive_entry_set_size(e, (la_int64_t)size);
        assert_true(archive_write_header(a, e) >= ARCHIVE_WARN);
        static char zeros[1 << 16];
        for (size_t left = size; left;) {
            size_t chunk = left < sizeof zeros ? left : sizeof zeros;
            assert_true(archive_write_data(a, items[i].zeros ? zeros : items[i].name, chunk) >= 0);
            left -= chunk;
        }
        archive_entry_free(e);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    pst_buf_add(ret, mem, used);
    free(mem);
}

typedef struct place {
    char dir[64];
    char *out;
} place;

static int setup(void **state)
{
    place *p = pst_alloc(sizeof *p);
    strcpy(p->dir, "/tmp/pst-archive-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->out = pst_fs_join(p->dir, "out");
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;
    pst_fs_remove_tree(p->dir, NULL);
    free(p->out);
    free(p);
    return 0;
}

static bool there(const place *p, const char *name)
{
    char *path = pst_fs_join(p->dir, name);
    struct stat st;
    bool yes = lstat(path, &st) == 0;
    free(path);
    return yes;
}

static void test_archive_attacks_are_refused_with_a_reason(void **state)
{
    place *p = *state;
    char deep[200] = "";
    for (int i = 0; i < 33; i++)
        strcat(deep, "d/");
    strcat(deep, "f");
    char *deep_name = deep;
    const struct {
        const char *format;
        item items[2];
        size_t n;
        const char *says;
    } cases[] = {
        {"zip", {{"../evil", AE_IFREG, NULL, 0, 0}}, 1, ".."},
        {"zip", {{"a/../../evil", AE_IFREG, NULL, 0, 0}}, 1, ".."},
        {"tar", {{"../evil", AE_IFREG, NULL, 0, 0}}, 1, ".."},
        {"tgz", {{"../evil", AE_IFREG, NULL, 0, 0}}, 1, ".."},
        {"zip", {{"/tmp/pst-evil", AE_IFREG, NULL, 0, 0}}, 1, "absolute"},
        {"tar", {{"/tmp/pst-evil", AE_IFREG, NULL, 0, 0}}, 1, "absolute"},
        {"tar", {{"link", AE_IFLNK, "/etc", 0, 0}, {"link/evil", AE_IFREG, NULL, 0, 0}}, 2, "symbolic"},
        {"zip", {{"link", AE_IFLNK, "..", 0, 0}, {"link/evil", AE_IFREG, NULL, 0, 0}}, 2, "symbolic"},
        {"tar", {{"a", AE_IFREG, NULL, 0, 0}, {"b", 0, "a", 0, 0}}, 2, "hard"},
        {"tar", {{"b", 0, "../../../etc/passwd", 0, 0}}, 1, "hard"},
        {"tar", {{"dev", AE_IFCHR, NULL, 0, 0}}, 1, "neither a file"},
        {"tar", {{"fifo", AE_IFIFO, NULL, 0, 0}}, 1, "neither a file"},
        {"tar", {{"a\\b", AE_IFREG, NULL, 0, 0}}, 1, "backslash"},
        {"zip", {{"..\\evil", AE_IFREG, NULL, 0, 0}}, 1, ".."}, /* libarchive turns these into slashes */
        {"zip", {{"a\nb", AE_IFREG, NULL, 0, 0}}, 1, "control"},
        {"tar", {{"same", AE_IFREG, NULL, 0, 0}, {"same", AE_IFREG, NULL, 0, 0}}, 2, "twice"},
        {"tar", {{"file", AE_IFREG, NULL, 0, 0}, {"file/inside", AE_IFREG, NULL, 0, 0}}, 2, "no folder"},
        {"tar", {{deep_name, AE_IFREG, NULL, 0, 0}}, 1, "deeper"},
        {"zip", {{"bomb", AE_IFREG, NULL, 100 << 20, 0}}, 1, "times its size"},
        {"tgz", {{"bomb", AE_IFREG, NULL, 100 << 20, 0}}, 1, "times its size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_buf b = {0};
        pst_err err = {0};
        build(cases[i].format, cases[i].items, cases[i].n, &b);
        int rc = pst_archive_unpack(b.data, b.len, p->out, &err);
        if (rc >= 0 || !strstr(err.text, cases[i].says) || err.cls != PST_CLASS_DATA)
            fail_msg("case %zu (%s %s): rc %d, '%s'", i, cases[i].format, cases[i].items[0].name, rc, err.text);
        pst_buf_done(&b);
        assert_false(there(p, "evil"));
        assert_int_not_equal(access("/tmp/pst-evil", F_OK), 0);
        assert_int_equal(pst_fs_remove_tree(p->out, NULL), 0);
    }
}

static void test_archive_junk_and_truncation_are_errors_not_crashes(void **state)
{
    place *p = *state;
    pst_err err = {0};
    assert_int_equal(pst_archive_unpack("", 0, p->out, &err), PST_EPARSE);
    assert_int_equal(pst_archive_unpack("not an archive at all", 21, p->out, NULL), PST_EPARSE);
    const item items[] = {{"a/b.py", AE_IFREG, NULL, 0, 0}, {"c", AE_IFREG, NULL, 30000, 0}};
    static const char *const formats[] = {"zip", "tar", "tgz"};
    for (int f = 0; f < 3; f++) {
        pst_buf b = {0};
        build(formats[f], items, 2, &b);
        int failed = 0;
        size_t step = b.len / 97 + 1;
        for (size_t cut = 0; cut < b.len; cut += step) {
            failed += pst_archive_unpack(b.data, cut, p->out, NULL) < 0;
            pst_fs_remove_tree(p->out, NULL);
        }
        assert_true(failed > 20);
        for (size_t at = 0; at < b.len; at += step) { /* flipped bytes: any answer, no crash, nothing outside */
            b.data[at] ^= 0x55;
            pst_archive_unpack(b.data, b.len, p->out, NULL);
            pst_fs_remove_tree(p->out, NULL);
            b.data[at] ^= 0x55;
        }
        pst_buf_done(&b);
    }
}

/* What is refused before an archive is taken; nothing is written for it. */
static void test_archive_check_looks_into_zips_without_unpacking(void **state)
{
    static const item fine[] = {{"lib/", AE_IFDIR, NULL, 0, 0755}, {"lib/a.sh", AE_IFREG, NULL, 0, 0755}},
                      slip[] = {{"../a", AE_IFREG, NULL, 0, 0}}, link[] = {{"a", AE_IFLNK, "/etc/passwd", 0, 0}},
                      bomb[] = {{"a", AE_IFREG, NULL, 200u << 20, 0}};
    static const struct {
        const char *format;
        const item *items;
        size_t n;
        const char *said; /* NULL: it is taken */
    } rows[] = {{"zip", fine, 2, NULL},
                {"zip", slip, 1, ".."},
                {"zip", link, 1, "symbolic"},
                {"zip", bomb, 1, "200 times"},
                {"tgz", fine, 2, "no zip"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_buf b = {0};
        pst_err err = {0};
        build(rows[i].format, rows[i].items, rows[i].n, &b);
        int rc = pst_archive_check(b.data, b.len, &err);
        assert_int_equal(rc != 0, rows[i].said != NULL);
        if (rows[i].said && (err.cls != PST_CLASS_DATA || !strstr(err.text, rows[i].said)))
            fail_msg("%s, wanted %s", err.text, rows[i].said);
        if (!i) { /* cut anywhere, it has no directory */
            for (size_t n = 0; n < b.len; n++) {
                pst_err_clear(&err);
                assert_true(pst_archive_check(b.data, n, &err) < 0 && err.cls == PST_CLASS_DATA);
            }
        }
        pst_buf_done(&b);
    }
}

static void test_archive_ordinary_ones_unpack(void **state)
{
    place *p = *state;
    const item items[] = {{"./", AE_IFDIR, NULL, 0, 0755},
                          {"./src/", AE_IFDIR, NULL, 0, 0755},
                          {"./src/train.py", AE_IFREG, NULL, 0, 0644},
                          {"run.sh", AE_IFREG, NULL, 0, 0755},
                          {"d\xc3\xa4t\xc3\xa4/x", AE_IFREG, NULL, 0, 0644}};
    static const char *const formats[] = {"zip", "tar", "tgz"};
    for (int f = 0; f < 3; f++) {
        pst_buf b = {0};
        pst_err err = {0};
        build(formats[f], items, 5, &b);
        if (pst_archive_unpack(b.data, b.len, p->out, &err) < 0)
            fail_msg("%s: %s", formats[f], err.text);
        assert_true(there(p, "out/src/train.py"));
        assert_true(there(p, "out/d\xc3\xa4t\xc3\xa4/x"));
        struct stat st;
        static const char *const all[] = {"run.sh", "src/train.py"}; /* of 0644 too: FfDL's commands run such files by ./NAME */
        for (int i = 0; i < 2; i++) {
            char *run = pst_fs_join(p->out, all[i]);
            assert_int_equal(stat(run, &st), 0);
            assert_int_equal(st.st_mode & 07777, 0700);
            free(run);
        }
        pst_buf_done(&b);
        assert_int_equal(pst_fs_remove_tree(p->out, NULL), 0);
    }
}

static void put(const place *p, const char *name, const char *text, int mode)
{
    char *path = pst_fs_join(p->dir, name);
    assert_int_equal(pst_fs_write_atomic(path, text, strlen(text), (mode_t)mode, NULL), 0);
    assert_int_equal(chmod(path, (mode_t)mode), 0);
    free(path);
}

static void test_archive_packed_folder_comes_back_and_is_deterministic(void **state)
{
    place *p = *state;
    char *in = pst_fs_join(p->dir, "in"), *sub = pst_fs_join(p->dir, "in/sub"), *git = pst_fs_join(p->dir, "in/.git");
    assert_int_equal(pst_fs_mkdirs(sub, 0755, NULL), 0);
    assert_int_equal(pst_fs_mkdirs(git, 0755, NULL), 0);
    put(p, "in/run.sh", "echo hi", 0755);
    put(p, "in/sub/b.txt", "bbb", 0644);
    put(p, "in/sub/empty", "", 0644);
    put(p, "in/.git/config", "secret", 0644);
    char *link = pst_fs_join(p->dir, "in/link");
    assert_int_equal(symlink("/etc/passwd", link), 0);
    pst_buf a = {0}, b = {0};
    char type[32];
    pst_err err = {0};
    assert_int_equal(pst_archive_pack(in, 1 << 20, &a, type, &err), 0);
    assert_string_equal(type, "application/zip");
    sleep(2); /* zip times have two seconds */
    put(p, "in/sub/b.txt", "bbb", 0644);
    assert_int_equal(pst_archive_pack(in, 1 << 20, &b, type, &err), 0);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    assert_int_equal(pst_archive_unpack(a.data, a.len, p->out, &err), 0);
    assert_true(there(p, "out/run.sh"));
    assert_true(there(p, "out/sub/b.txt"));
    assert_true(there(p, "out/sub/empty"));
    assert_false(there(p, "out/.git"));
    assert_false(there(p, "out/link"));
    pst_buf_done(&b);
    assert_int_equal(pst_archive_pack(in, 50, &b, type, &err), PST_ELIMIT);
    /* A file that is an archive already passes through, another file does not. */
    char *zip = pst_fs_join(p->dir, "a.zip");
    assert_int_equal(pst_fs_write_atomic(zip, a.data, a.len, 0600, NULL), 0);
    pst_err_clear(&err);
    assert_int_equal(pst_archive_pack(zip, 1 << 20, &b, type, &err), 0);
    assert_int_equal(b.len, a.len);
    pst_buf_done(&b);
    char *text = pst_fs_join(p->dir, "in/run.sh");
    assert_int_equal(pst_archive_pack(text, 1 << 20, &b, type, &err), PST_EINVAL);
    char *none = pst_fs_join(p->dir, "none");
    assert_int_equal(pst_archive_pack(none, 1 << 20, &b, type, NULL), PST_ENOTFOUND);
    pst_buf_done(&a);
    char *all[] = {in, sub, git, link, zip, text, none};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* ---- a folder that somebody writes to ---- */

typedef struct mover {
    int dir; /* with a folder `a` and a file `b` */
    _Atomic bool over;
} mover;

static void *swap_names(void *arg)
{
    mover *m = arg;
    while (!m->over)
        syscall(SYS_renameat2, m->dir, "a", m->dir, "b", RENAME_EXCHANGE);
    return NULL;
}

static bool at_once(void *arg)
{
    return arg != NULL;
}

static int pack_in(const char *in, size_t bytes_max, void *stops, pst_err *err)
{
    char to[] = "/tmp/penstock-pack-XXXXXX";
    int fd = mkstemp(to), dir = open(in, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0 && dir >= 0);
    unlink(to);
    pst_err_clear(err);
    int rc = pst_archive_pack_folder(dir, fd, bytes_max, at_once, stops, err);
    close(fd);
    return rc;
}

/* It is the learner's, who may do anything with it at any moment. */
static void test_archive_of_a_folder_that_changes_is_made_or_refused(void **state)
{
    place *p = *state;
    pst_err err = {0};
    char *in = pst_fs_join(p->dir, "in"), *sub = pst_fs_join(p->dir, "in/a"), *file = pst_fs_join(p->dir, "in/b");
    assert_int_equal(pst_fs_mkdirs(sub, 0755, NULL), 0);
    put(p, "in/b", "bbb", 0644);
    put(p, "in/a/c", "ccc", 0644);
    mover m = {.dir = open(in, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, swap_names, &m), 0);
    for (int i = 0; i < 3000; i++)
        assert_int_equal(pack_in(in, 1 << 20, NULL, &err), 0);
    m.over = true;
    pthread_join(t, NULL);
    close(m.dir);
    assert_int_equal(pack_in(in, 1 << 20, &err, &err), PST_EAGAIN); /* told to stop */
    char *hole = pst_fs_join(p->dir, "in/hole");
    int fd = open(hole, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, (off_t)4 << 40), 0); /* packs to nearly nothing, in hours */
    close(fd);
    assert_int_equal(pack_in(in, 1 << 20, NULL, &err), PST_ELIMIT);
    assert_non_null(strstr(err.text, "hole"));
    char *all[] = {in, sub, file, hole};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_archive_attacks_are_refused_with_a_reason, setup, teardown),
        cmocka_unit_test_setup_teardown(test_archive_junk_and_truncation_are_errors_not_crashes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_archive_check_looks_into_zips_without_unpacking, setup, teardown),
        cmocka_unit_test_setup_teardown(test_archive_ordinary_ones_unpack, setup, teardown),
        cmocka_unit_test_setup_teardown(test_archive_packed_folder_comes_back_and_is_deterministic, setup, teardown),
        cmocka_unit_test_setup_teardown(test_archive_of_a_folder_that_changes_is_made_or_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
