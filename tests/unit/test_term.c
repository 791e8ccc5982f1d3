/* test_term.c - what steers a terminal becomes text; what does not stays; on a real terminal (a pty) our own colours alone get through. */
#include "common/base/term.h"
#include "tests/unit/test.h"

#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_term_shows_what_steers(void **state)
{
    static const char *const rows[][2] = {{"plain äöü → ✓ 日本 🎈\ttab\n", "plain äöü → ✓ 日本 🎈\ttab\n"},
                                          {"\033[2J", "^[[2J"},
                                          {"\033]0;evil\007", "^[]0;evil^G"},
                                          {"a\rb\bc\177", "a^Mb^Hc^?"},
                                          {"\302\2332J", "<U+009B>2J"}, /* CSI of C1, as UTF-8 */
                                          {"\2332J", "\\x9b2J"},        /* and as a byte */
                                          {"\302", "\\xc2"},
                                          {"\300\233", "\\xc0\\x9b"},          /* overlong */
                                          {"\355\240\200", "\\xed\\xa0\\x80"}, /* a surrogate */
                                          {"\364\220\200\200", "\\xf4\\x90\\x80\\x80"},
                                          {"a\342\200\256b", "a<U+202E>b"},
                                          {"\342\201\246\342\201\251", "<U+2066><U+2069>"},
                                          {"\342\200\250", "<U+2028>"},
                                          {"\342\200\217\330\234", "<U+200F><U+061C>"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_buf b = {0};
        pst_term_show(&b, rows[i][0], strlen(rows[i][0]));
        assert_string_equal(b.data, rows[i][1]);
        pst_buf_done(&b);
    }
    pst_buf b = {0};
    pst_term_show(&b, "a\0b", 3);
    assert_string_equal(b.data, "a^@b");
    pst_buf_done(&b);
}

static void test_term_quotes_a_strangers_text_on_one_line(void **state)
{
    static const char *const rows[][2] = {{"Größe → 日本 🎈", "Größe → 日本 🎈"},
                                          {"a\nevent=forged\tb\r", "a^Jevent=forged^Ib^M"},
                                          {"say \"no\"", "say \\\"no\\\""},
                                          {"a\342\200\256b\033[2J\303", "a<U+202E>b^[[2J\\xc3"},
                                          {"", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_buf b = {0};
        pst_buf_adds(&b, "<");
        pst_term_quote(&b, rows[i][0], strlen(rows[i][0]), 60);
        assert_memory_equal(b.data, "<", 1);
        assert_int_equal(b.len, 1 + strlen(rows[i][1]));
        assert_memory_equal(b.data + 1, rows[i][1], strlen(rows[i][1]));
        pst_buf_done(&b);
    }
    static const char *const cut[] = {"…", "…", "ä…", "ä…", "ää", "ää"}; /* of äää, at so many bytes */
    for (size_t most = 0; most < 6; most++) {
        pst_buf b = {0};
        pst_term_quote(&b, most < 4 ? "äää" : "ää", most < 4 ? 6 : 4, most);
        assert_string_equal(b.data, cut[most]);
        pst_buf_done(&b);
    }
}

/* Runs child() with a terminal as stdout and stderr; what the terminal got. */
static void on_pty(void (*child)(void), char *ret, size_t max)
{
    int master;
    pid_t pid = forkpty(&master, NULL, NULL, NULL);
    assert_true(pid >= 0);
    if (pid == 0) {
        pst_term_init();
        child();
        exit(0);
    }
    size_t n = 0;
    for (ssize_t got; n < max - 1 && (got = read(master, ret + n, max - 1 - n)) > 0;)
        n += (size_t)got;
    ret[n] = 0;
    close(master);
    waitpid(pid, NULL, 0);
}

static void speak(void)
{
    printf("%s%s%s\n", pst_tint(33), "\033[31mred\033[0m", pst_tint(0));
    for (const char *p = "\342\200\256 and \302\233\n"; *p; p++) { /* byte by byte: a character may come in pieces */
        putchar(*p);
        fflush(stdout);
    }
    fprintf(stderr, "err \033c %s!%s\n", pst_tint(1), pst_tint(0));
    printf("end \342");
}

static void test_term_lets_our_colours_alone_through(void **state)
{
    char got[4096];
    on_pty(speak, got, sizeof got);
    assert_non_null(strstr(got, "\033[33m^[[31mred^[[0m\033[0m\r\n"));
    assert_non_null(strstr(got, "<U+202E> and <U+009B>\r\n"));
    assert_non_null(strstr(got, "err ^[c \033[1m!\033[0m\r\n"));
    assert_non_null(strstr(got, "end \\xe2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_term_shows_what_steers),
                                       cmocka_unit_test(test_term_quotes_a_strangers_text_on_one_line),
                                       cmocka_unit_test(test_term_lets_our_colours_alone_through)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
