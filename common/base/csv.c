/* csv.c - one pass of bytes into one buffer: fields lie there one behind the other, each with its NUL. Positions, not pointers, mark them,
 * because the buffer may move while a record is read. */
#include "common/base/csv.h"

#include "common/base/array.h"
#include "common/base/buf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct pst_csv {
    FILE *file;
    char *name;
    char delimiter;
    pst_buf record;
    size_t *at; /* where each field begins in record */
    size_t n, cap;
    int64_t line, begins; /* of the byte that comes next; of the record */
    char **names;
    size_t columns;
};

static int bad(const pst_csv *c, pst_err *err, int code, const char *why)
{
    return pst_err_set(err, code, PST_CLASS_DATA, "csv", 0, "%s:%lld: %s", c->name, (long long)c->begins, why);
}

static int new_field(pst_csv *c, pst_err *err)
{
    if (c->n == PST_CSV_COLUMNS_MAX)
        return bad(c, err, PST_ELIMIT, "more than 10,000 columns");
    c->at = pst_array_room(c->at, c->n, &c->cap, sizeof *c->at);
    c->at[c->n++] = c->record.len;
    return 0;
}

static int next_byte(pst_csv *c)
{
    int b = getc_unlocked(c->file);
    if (b == '\r') { /* CR LF and a lone CR are a line's end as LF is */
        int after = getc_unlocked(c->file);
        if (after != '\n' && after != EOF)
            ungetc(after, c->file);
        b = '\n';
    }
    if (b == '\n')
        c->line++;
    return b;
}

/* Behind an opening quote, up to the closing one. */
static int quoted(pst_csv *c, pst_err *err)
{
    for (;;) {
        int b = getc_unlocked(c->file); /* line ends inside quotes stay as they are */
        if (b == EOF)
            return bad(c, err, PST_EPARSE, "a quote is opened and never closed");
        if (b == '\n')
            c->line++;
        if (b == '"') {
            int after = getc_unlocked(c->file);
            if (after != '"') {
                if (after != EOF)
                    ungetc(after, c->file);
                return 0;
            }
        }
        if (!b)
            return bad(c, err, PST_EPARSE, "a NUL byte: this is no text file");
        if (c->record.len >= PST_CSV_RECORD_MAX)
            return bad(c, err, PST_ELIMIT, "a record of more than 1 MiB; is a quote missing?");
        pst_buf_addc(&c->record, (char)b);
    }
}

/* One record whatever is in it. 1 or 0 = end of file. */
static int read_record(pst_csv *c, pst_err *err)
{
    pst_buf_clear(&c->record);
    c->n = 0;
    c->begins = c->line;
    bool fresh = true; /* at the beginning of a field: a quote opens */
    int rc = new_field(c, err), b = 0;
    for (; rc == 0;) {
        b = next_byte(c);
        if (b == EOF || b == '\n')
            break;
        if (!b)
            return bad(c, err, PST_EPARSE, "a NUL byte: this is no text file");
        if (c->record.len >= PST_CSV_RECORD_MAX)
            return bad(c, err, PST_ELIMIT, "a record of more than 1 MiB; is this a CSV file?");
        if (b == '"' && fresh) {
            rc = quoted(c, err);
            fresh = false;
        } else if (c->delimiter && b == c->delimiter) {
            pst_buf_addc(&c->record, '\0');
            rc = new_field(c, err);
            fresh = true;
        } else {
            pst_buf_addc(&c->record, (char)b);
            fresh = false;
        }
    }
    if (rc < 0)
        return rc;
    if (ferror(c->file))
        return bad(c, err, PST_EIO, "cannot be read");
    bool empty = c->n == 1 && !c->record.len && fresh;
    pst_buf_addc(&c->record, '\0');
    return b == EOF && empty ? 0 : 1;
}

/* The first of , ; tab that is most frequent outside quotes; a comma when there is none. */
static char find_delimiter(const char *text)
{
    static const char candidates[] = ",;\t";
    size_t counts[3] = {0}, best = 0;
    bool inside = false;
    for (const char *p = text; *p; p++) {
        inside ^= *p == '"';
        const char *hit = inside ? NULL : strchr(candidates, *p);
        if (hit)
            counts[hit - candidates]++;
    }
    for (size_t i = 1; i < 3; i++)
        if (counts[i] > counts[best])
            best = i;
    return candidates[best];
}

/* Looks at the first line, then goes back: the file may be a pipe, so the bytes are put into a stream in front of it. */
static int peek_delimiter(pst_csv *c, pst_err *err)
{
    pst_buf line = {0};
    int b, rc = 0;
    bool inside = false;
    while ((b = getc_unlocked(c->file)) != EOF && line.len <= PST_CSV_RECORD_MAX) {
        pst_buf_addc(&line, (char)b);
        inside ^= b == '"';
        if (!b || ((b == '\n' || b == '\r') && !inside))
            break;
    }
    size_t skip = line.len >= 3 && !memcmp(line.data, "\xef\xbb\xbf", 3) ? 3 : 0;
    if (line.len > PST_CSV_RECORD_MAX)
        rc = bad(c, err, PST_ELIMIT, "a header of more than 1 MiB; is this a CSV file?");
    else if (line.len && memchr(line.data, 0, line.len))
        rc = bad(c, err, PST_EPARSE, "a NUL byte: this is no text file");
    else if (line.len <= skip)
        rc = bad(c, err, PST_EPARSE, "is empty; the first line must name the columns");
    if (!rc) {
        c->delimiter = find_delimiter(line.data + skip);
        FILE *head = fmemopen(line.data + skip, line.len - skip, "r"), *rest = c->file;
        if (!head)
            rc = bad(c, err, PST_EIO, "cannot be read");
        else {
            c->file = head;
            rc = read_record(c, err);
            fclose(head);
            c->file = rest;
            if (b == '\r') { /* its LF is still in the file */
                int after = getc_unlocked(rest);
                if (after != '\n' && after != EOF)
                    ungetc(after, rest);
            }
        }
    }
    pst_buf_done(&line);
    return rc < 0 ? rc : 0;
}

int pst_csv_open(FILE *file, const char *name, pst_csv **ret_csv, pst_err *err)
{
    pst_csv *c = pst_alloc(sizeof *c);
    *c = (pst_csv){.file = file, .name = pst_strdup(name), .line = 1, .begins = 1};
    int rc = peek_delimiter(c, err);
    c->names = rc ? NULL : pst_alloc((c->n + 1) * sizeof *c->names);
    for (size_t i = 0; !rc && i < c->n; i++) {
        char *text = c->record.data + c->at[i], *end = text + strlen(text);
        text += strspn(text, " ");
        while (end > text && end[-1] == ' ')
            *--end = '\0';
        for (size_t k = 0; k < i && !rc; k++)
            if (*text && !strcmp(c->names[k], text))
                rc = bad(c, err, PST_EPARSE, "two columns have the same name");
        c->names[c->columns++] = pst_strdup(text);
    }
    if (rc < 0)
        pst_csv_close(c);
    else
        *ret_csv = c;
    return rc;
}

void pst_csv_close(pst_csv *c)
{
    if (!c)
        return;
    fclose(c->file);
    for (size_t i = 0; i < c->columns; i++)
        free(c->names[i]);
    free(c->names);
    free(c->at);
    free(c->name);
    pst_buf_done(&c->record);
    free(c);
}

size_t pst_csv_columns(const pst_csv *c)
{
    return c->columns;
}

const char *pst_csv_name(const pst_csv *c, size_t column)
{
    return column < c->columns ? c->names[column] : NULL;
}

int pst_csv_find(const pst_csv *c, const char *name)
{
    for (size_t i = 0; i < c->columns; i++)
        if (!strcmp(c->names[i], name))
            return (int)i;
    return -1;
}

int pst_csv_next(pst_csv *c, pst_err *err)
{
    int rc;
    do
        rc = read_record(c, err);
    while (rc == 1 && c->n == 1 && !c->record.data[0] && c->columns > 1);
    return rc;
}

size_t pst_csv_fields(const pst_csv *c)
{
    return c->n;
}

const char *pst_csv_field(const pst_csv *c, size_t field)
{
    return field < c->n ? c->record.data + c->at[field] : NULL;
}

int64_t pst_csv_line(const pst_csv *c)
{
    return c->begins;
}

int pst_csv_number(const char *text, double *ret)
{
    static const char *const none[] = {"", "NA", "N/A", "null", "nan", "none"};
    text += strspn(text, " ");
    size_t len = strlen(text);
    while (len && text[len - 1] == ' ')
        len--;
    *ret = NAN;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (len == strlen(none[i]) && !strncasecmp(text, none[i], len))
            return 1;
    if ((len == 4 && !strncasecmp(text, "true", 4)) || (len == 5 && !strncasecmp(text, "false", 5))) {
        *ret = len == 4;
        return 0;
    }
    char *end;
    double v = strtod(text, &end);
    if (end != text + len || strspn(text, "+-.0123456789eE") < len) /* no hexadecimal, no "inf" */
        return -1;
    if (!isfinite(v))
        return -1;
    *ret = v;
    return 0;
}
