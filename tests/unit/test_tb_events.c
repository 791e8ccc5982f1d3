/* test_tb_events.c - TensorBoard's event files: bytes of a writer that is not ours, what is damaged, hostile and large, and a folder of them. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "lcm/supervisor/tb_events.h"
#include "lcm/supervisor/tb_files.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct seen {
    struct {
        char tag[40], group[40];
        int64_t step, time_us;
        double value;
    } at[3000];
    size_t n, said;
    char last[500];
} seen;

static void see(void *arg, int64_t time_us, int64_t step, const char *tag, size_t tag_len, double value)
{
    seen *s = arg;
    assert_true(s->n < 3000);
    snprintf(s->at[s->n].tag, 40, "%.*s", (int)tag_len, tag);
    s->at[s->n].step = step;
    s->at[s->n].time_us = time_us;
    s->at[s->n++].value = value;
}

static void see_point(void *arg, const pst_metric_point *p)
{
    seen *s = arg;
    see(s, p->time, p->step, p->values[0].key, strlen(p->values[0].key), p->values[0].value);
    snprintf(s->at[s->n - 1].group, 40, "%s", p->group);
}

static void see_words(void *arg, const char *text)
{
    seen *s = arg;
    s->said++;
    snprintf(s->last, sizeof s->last, "%s", text);
}

/* ---- a writer ------------------------------------------------------------------------------------------------------------------- */

static void little(pst_buf *b, uint64_t v, int n)
{
    for (; n; n--, v >>= 8)
        pst_buf_addc(b, (char)v);
}

static void crc(pst_buf *b, const char *data, size_t len)
{
    uint32_t c = pst_crc32c(0, data, len);
    little(b, (uint32_t)((c >> 15 | c << 17) + 0xa282ead8u), 4);
}

static void record(pst_buf *b, const char *data, size_t len)
{
    pst_buf head = {0};
    little(&head, len, 8);
    pst_buf_add(b, head.data, 8);
    crc(b, head.data, 8);
    pst_buf_add(b, data, len);
    crc(b, data, len);
    pst_buf_done(&head);
}

static void part(pst_buf *b, int field, const void *data, size_t len)
{
    assert_true(len < 128);
    pst_buf_addc(b, (char)(field << 3 | 2));
    pst_buf_addc(b, (char)len);
    pst_buf_add(b, data, len);
}

/* An event with one value; kind: what stands beside the tag. */
static void event(pst_buf *b, double seconds, int step, const char *tag, const pst_buf *kind)
{
    pst_buf v = {0}, s = {0}, e = {0};
    uint64_t bits;
    memcpy(&bits, &seconds, 8);
    part(&v, 1, tag, strlen(tag));
    pst_buf_add(&v, kind->data, kind->len);
    part(&s, 1, v.data, v.len);
    pst_buf_addc(&e, 1 << 3 | 1);
    little(&e, bits, 8);
    pst_buf_addc(&e, 2 << 3);
    pst_buf_addc(&e, (char)step);
    part(&e, 5, s.data, s.len);
    record(b, e.data, e.len);
    pst_buf_done(&v);
    pst_buf_done(&s);
    pst_buf_done(&e);
}

static void simple(pst_buf *b, double seconds, int step, const char *tag, float value)
{
    pst_buf kind = {0};
    uint32_t bits;
    memcpy(&bits, &value, 4);
    pst_buf_addc(&kind, 2 << 3 | 5);
    little(&kind, bits, 4);
    event(b, seconds, step, tag, &kind);
    pst_buf_done(&kind);
}

static void feed(seen *s, const pst_buf *b, size_t piece, sup_tb *ret)
{
    memset(s, 0, sizeof *s);
    *ret = (sup_tb){.scalar = see, .arg = s};
    for (size_t at = 0; at < b->len; at += piece)
        sup_tb_feed(ret, b->data + at, b->len - at < piece ? b->len - at : piece);
}

/* ---- tests ---------------------------------------------------------------------------------------------------------------------- */

/* The first record of every event file, as TensorBoard's writer makes it: file_version "brain.Event:2". The checksums are its own, not ours. */
static void test_tb_framing_is_tensorboards(void **state)
{
    static const char bytes[] = "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09\0\0\xc0\xcb\x1a\x9e\xd5\x41\x1a\x0d"
                                "brain.Event:2";
    pst_buf b = {0};
    pst_buf_add(&b, bytes, 12 + 24);
    crc(&b, bytes + 12, 24);
    seen s;
    sup_tb t;
    feed(&s, &b, b.len, &t);
    assert_false(t.lost); /* the length's checksum, a3 7f 4b 22, stands in every event file of TensorFlow */
    assert_int_equal(t.damaged + t.large, 0);
    assert_false(sup_tb_inside(&t));
    sup_tb_reset(&t);
    pst_buf_done(&b);
}

static void test_tb_scalars_of_both_versions_in_pieces_of_any_size(void **state)
{
    static const char tensor_float[] = "\x42\x0a\x08\x01\x12\x00\x22\x04\x00\x00\x20\x40", /* content, 2.5f, as Keras writes */
        float_val[] = "\x42\x0a\x08\x01\x12\x00\x2a\x04\x00\x00\x20\x40",                  /* packed float_val, 2.5f */
        int64_val[] = "\x42\x06\x08\x09\x12\x00\x50\x07",                                  /* bare int64_val, 7 */
        two[] = "\x42\x0e\x08\x01\x12\x00\x22\x08\x00\x00\x20\x40\x00\x00\x20\x40",        /* two numbers: no scalar */
        text[] = "\x42\x07\x08\x07\x12\x00\x42\x01x";                                      /* a string */
    struct {
        const char *bytes;
        size_t len;
    } kinds[] = {{tensor_float, 12}, {float_val, 12}, {int64_val, 8}, {two, 16}, {text, 9}};
    pst_buf b = {0};
    simple(&b, 1700000000.5, 3, "loss", 0.25f);
    simple(&b, 1700000001, 4, "loss", NAN);
    simple(&b, NAN, 5, "loss", -INFINITY);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        pst_buf kind = {0};
        pst_buf_add(&kind, kinds[i].bytes, kinds[i].len);
        event(&b, 1700000002, 6, "tensor", &kind);
        pst_buf_done(&kind);
    }
    for (size_t piece = 1; piece < 200; piece += 3) {
        seen s;
        sup_tb t;
        feed(&s, &b, piece, &t);
        assert_int_equal(s.n, 6);
        assert_true(s.at[0].value == 0.25 && s.at[0].step == 3 && s.at[0].time_us == 1700000000500000);
        assert_true(isnan(s.at[1].value) && isinf(s.at[2].value) && s.at[2].time_us == 0);
        assert_true(s.at[3].value == 2.5 && s.at[4].value == 2.5 && s.at[5].value == 7);
        assert_false(t.lost || t.damaged || sup_tb_inside(&t));
        sup_tb_reset(&t);
    }
    pst_buf_done(&b);
}

static void test_tb_damage_costs_a_record_or_the_rest(void **state)
{
    pst_buf b = {0};
    simple(&b, 1, 1, "a", 1);
    size_t second = b.len;
    simple(&b, 1, 2, "a", 2);
    size_t third = b.len;
    simple(&b, 1, 3, "a", 3);
    seen s;
    sup_tb t;
    b.data[second + 20] ^= 1;
    feed(&s, &b, 7, &t);
    assert_true(s.n == 2 && t.damaged == 1 && !t.lost && s.at[1].step == 3);
    sup_tb_reset(&t);
    b.data[second + 20] ^= 1;
    b.data[third] ^= 1;
    feed(&s, &b, 7, &t);
    assert_true(s.n == 2 && t.lost && !sup_tb_inside(&t));
    sup_tb_reset(&t);
    b.data[third] ^= 1;
    b.len -= 5;
    feed(&s, &b, 7, &t);
    assert_true(s.n == 2 && sup_tb_inside(&t));
    sup_tb_reset(&t);
    pst_buf_done(&b);
}

/* Images are passed over without being held; the length of nearly everything, too. */
static void test_tb_large_records_are_passed_over(void **state)
{
    pst_buf b = {0}, huge = {0};
    char *image = calloc(1, 3 << 20);
    simple(&b, 1, 1, "a", 1);
    record(&b, image, 3 << 20);
    simple(&b, 1, 2, "a", 2);
    for (size_t piece = 1000; piece <= 8 << 20; piece *= 20) {
        seen s;
        sup_tb t;
        feed(&s, &b, piece, &t);
        assert_true(s.n == 2 && t.large == 1 && !sup_tb_inside(&t));
        sup_tb_reset(&t);
    }
    b.len = 0;
    little(&huge, UINT64_MAX, 8);
    pst_buf_add(&b, huge.data, 8);
    crc(&b, huge.data, 8);
    simple(&b, 1, 2, "a", 2);
    seen s;
    sup_tb t;
    feed(&s, &b, 9, &t);
    assert_true(s.n == 0 && t.large == 1 && sup_tb_inside(&t));
    sup_tb_reset(&t);
    free(image);
    pst_buf_done(&b);
    pst_buf_done(&huge);
}

static void put(const char *dir, const char *name, const pst_buf *b, int flags)
{
    char *path = pst_fs_join(dir, name), *slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(pst_fs_mkdirs(path, 0700, NULL), 0);
    *slash = '/';
    int fd = open(path, O_WRONLY | O_CREAT | flags, 0600);
    assert_int_equal(write(fd, b->data, b->len), b->len);
    close(fd);
    free(path);
}

static bool is_learner_2(void *arg, const char *entry)
{
    return !strcmp(entry, "learner-2");
}

/* Two learners on one folder: every scalar is read once, in the group of its folder; what was there before, links and FIFOs are not read. */
static void test_tb_files_of_shared_folders_are_read_once(void **state)
{
    char dir[] = "/tmp/penstock-tb-XXXXXX";
    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    pst_buf one = {0}, bad = {0};
    simple(&one, 1, 1, "a", 1);
    pst_buf_adds(&bad, "no event file at all");
    put(dir, "tb/train/events.out.tfevents.1", &one, 0);
    static seen s[2];
    sup_tb_files *t[2];
    for (int i = 0; i < 2; i++)
        t[i] = sup_tb_files_new(&(sup_tb_files_conf){.dir_fd = fd,
                                                     .name = "tb",
                                                     .process = i ? "learner-2" : "learner-1",
                                                     .shared = true,
                                                     .first = !i,
                                                     .point = see_point,
                                                     .anothers = is_learner_2,
                                                     .say = see_words,
                                                     .arg = &s[i]});
    put(dir, "tb/train/events.out.tfevents.1", &one, O_APPEND);
    put(dir, "tb/run/test/events.out.tfevents.2", &one, 0);
    put(dir, "tb/learner-2/events.out.tfevents.3", &one, 0);
    put(dir, "tb/learner-2/eval/events.out.tfevents.4", &one, 0);
    put(dir, "tb/events.out.tfevents.5", &one, 0);
    put(dir, "tb/events.out.tfevents.bad", &bad, 0);
    assert_int_equal(symlinkat("/etc", fd, "tb/etc"), 0);
    assert_int_equal(symlinkat("../outside", fd, "tb/tfevents.link"), 0);
    assert_int_equal(mkfifoat(fd, "tb/tfevents.fifo", 0600), 0);
    for (int i = 0; i < 2; i++)
        sup_tb_files_poll(t[i]);
    put(dir, "tb/events.out.tfevents.5", &one, O_APPEND);
    for (int i = 0; i < 2; i++)
        sup_tb_files_end(t[i]);
    assert_int_equal(s[0].n, 4);
    assert_int_equal(s[1].n, 2);
    int train = 0, test = 0, eval = 0;
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < s[i].n; k++) {
            train += !strcmp(s[i].at[k].group, "train");
            test += !strcmp(s[i].at[k].group, "test");
            eval += !strcmp(s[i].at[k].group, "eval");
        }
    assert_true(train == 4 && test == 1 && eval == 1);
    assert_int_equal(s[0].said, 1);
    assert_non_null(strstr(s[0].last, "tfevents.bad"));
    assert_int_equal(s[1].said, 0);
    close(fd);
    pst_fs_remove_tree(dir, NULL);
    pst_buf_done(&one);
    pst_buf_done(&bad);
}

static void test_tb_more_files_than_the_limit_are_told(void **state)
{
    char dir[] = "/tmp/penstock-tb-XXXXXX";
    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    pst_buf one = {0};
    simple(&one, 1, 1, "a", 1);
    static seen s;
    sup_tb_files *t = sup_tb_files_new(
        &(sup_tb_files_conf){.dir_fd = fd, .name = "", .process = "learner-1", .point = see_point, .say = see_words, .arg = &s});
    for (int i = 0; i < PST_TB_FILES_MAX + 5; i++) {
        char name[40];
        snprintf(name, sizeof name, "tfevents.%d", i);
        put(dir, name, &one, 0);
    }
    sup_tb_files_end(t);
    assert_int_equal(s.n, PST_TB_FILES_MAX);
    assert_int_equal(s.said, 1);
    close(fd);
    pst_fs_remove_tree(dir, NULL);
    pst_buf_done(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tb_framing_is_tensorboards),
                                       cmocka_unit_test(test_tb_scalars_of_both_versions_in_pieces_of_any_size),
                                       cmocka_unit_test(test_tb_damage_costs_a_record_or_the_rest),
                                       cmocka_unit_test(test_tb_large_records_are_passed_over),
                                       cmocka_unit_test(test_tb_files_of_shared_folders_are_read_once),
                                       cmocka_unit_test(test_tb_more_files_than_the_limit_are_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
