/* score_input.c - a file of records, read as a whole: what it is, is seen by its first bytes, and a file that is something else is refused before its first line. */
#include "inference/offline/score_input.h"

#include "common/base/fs.h"
#include "common/base/term.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 2000 << 20 };

int score_input_next(score_input *d, pst_slice *ret, pst_err *err)
{
    if (d->ocf)
        return score_ocf_next(d->ocf, ret, err);
    while (d->at < d->file.len) {
        const char *line = d->file.data + d->at, *end = memchr(line, '\n', d->file.len - d->at);
        size_t n = end ? (size_t)(end - line) : d->file.len - d->at;
        d->at += n + 1;
        while (n && (line[n - 1] == '\r' || line[n - 1] == ' '))
            n--;
        if (!n)
            continue;
        *ret = (pst_slice){line, n};
        return 1;
    }
    return 0;
}

/* A file of another kind would give an error for each of its lines, and none would say what is wrong. One good line makes it JSON lines. */
static int check_lines(score_input *d, pst_err *err)
{
    static const struct {
        const char *begins, *what;
        size_t len;
    } kinds[] = {{"\x1f\x8b", "is compressed by gzip: unpack it first", 2},
                 {"PK\3\4", "is a ZIP archive (or a spreadsheet): unpack it, or export it, first", 4},
                 {"PAR1", "is Parquet", 4},
                 {"ARROW1", "is an Arrow file", 6},
                 {"ORC", "is ORC", 3}};
    pst_slice line;
    size_t lines = 0;
    pst_buf first = {0};
    const char *what = NULL;
    bool good = false, open = false;
    while (!good && score_input_next(d, &line, err) > 0) {
        const char *text = line.data;
        size_t n = line.len;
        while (n && (*text == ' ' || *text == '\t'))
            text++, n--;
        if (!lines++) {
            pst_term_quote(&first, text, n, 60);
            open = n == 1 && (*text == '{' || *text == '[');
            what = *text == '[' ? "is a JSON array, or an object over several lines: jq -c '.[]' makes an object a line of it" : NULL;
        }
        good = n > 1 && *text == '{';
    }
    d->at = 0;
    if (!lines || (good && !open)) {
        pst_buf_done(&first);
        return 0;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (d->file.len >= kinds[i].len && !memcmp(d->file.data, kinds[i].begins, kinds[i].len))
            what = kinds[i].what;
    if (!what && open)
        what = "is JSON over several lines: jq -c . makes an object a line of it";
    if (!what && strpbrk(first.data ? first.data : "", ",;\t|"))
        what = "looks like CSV: make objects of its lines (mlr --icsv --ojsonl cat FILE), or write it to a topic (penstock source file)";
    int rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "--in %s: wanted are JSON lines, an object each, or an Avro container file; this %s (it begins with \"%s\")",
                         d->name, what ? what : "is neither", first.len ? first.data : "");
    pst_buf_done(&first);
    return rc;
}

int score_input_open(score_input *d, const char *name, pst_err *err)
{
    *d = (score_input){.name = name};
    int rc = pst_fs_read(name, FILE_BYTES_MAX, &d->file, err);
    if (rc < 0)
        return rc;
    if (score_ocf_is(d->file.data ? d->file.data : "", d->file.len))
        return score_ocf_open(d->file.data, d->file.len, name, &d->ocf, err);
    return check_lines(d, err);
}

void score_input_done(score_input *d)
{
    score_ocf_free(d->ocf);
    pst_buf_done(&d->file);
}
