/* sink_tensorboard.c - metric points as TensorBoard's event files: a log folder a job, a run a group.
 *
 *     DIR/<training id>/<group>/events.out.tfevents.0.<process>
 *
 * An event file is a row of records (length, masked CRC-32C of it, an Event message, masked CRC-32C of that), of which the first names the format's
 * version. The few fields that a scalar takes are written here by hand: two messages of five fields need no generated code. TensorBoard follows files that grow.
 * Sources: tensorflow/core/util/event.proto, summary.proto, tsl/lib/io/record_writer. */
#include "consumers/sink/sink.h"
#include "consumers/sink/sink_dir.h"

#include "common/base/hash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PENDING_MAX ((size_t)8 << 20)
#define FILES_MAX   200 /* in one round */

typedef struct tb_opts {
    sink_opts all;
    const char *dir;
} tb_opts;
static const pst_opt tb_options[] = {
    SINK_OPTS(tb_opts, "metrics"),
    {"dir", 'd', PST_OPT_STR, offsetof(tb_opts, dir), "DIR", NULL, "the log folder, TensorBoard's --logdir; required"},
};
extern const pst_usage sink_tensorboard_usage;
const pst_usage sink_tensorboard_usage = {"sink tensorboard",
                                          "--dir DIR",
                                          "Write metrics as TensorBoard's event files, a log folder a job.",
                                          "DIR/TRAINING_ID/GROUP/ holds one event file a process; a scalar's tag is the value's name, its "
                                          "step the point's step (else its epoch, rounded, else its "
                                          "number). Scorers stand under `pipeline_NAME`. Each point is there once, also after a kill "
                                          "(.penstock-sink.json says how far the topic was read).",
                                          "penstock sink tensorboard --dir runs & tensorboard --logdir runs",
                                          tb_options,
                                          sizeof tb_options / sizeof *tb_options,
                                          false};

typedef struct tb {
    sink_dir *dir;
    pst_buf message, record;
} tb;

/* ---- the format ---- */

static void add_varint(pst_buf *b, uint64_t v)
{
    for (; v > 127; v >>= 7)
        pst_buf_addc(b, (char)(v | 128));
    pst_buf_addc(b, (char)v);
}

static void add_bytes(pst_buf *b, int field, const void *data, size_t len)
{
    add_varint(b, (uint64_t)field << 3 | 2);
    add_varint(b, len);
    pst_buf_add(b, data, len);
}

static void add_le(pst_buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        pst_buf_addc(b, (char)(v >> (8 * i)));
}

static void add_crc(pst_buf *b, const void *data, size_t len)
{
    uint32_t crc = pst_crc32c(0, data, len);
    add_le(b, ((crc >> 15) | (crc << 17)) + 0xa282ead8u, 4);
}

static void frame(pst_buf *out, const pst_buf *message)
{
    size_t at = out->len;
    add_le(out, message->len, 8);
    add_crc(out, out->data + at, 8);
    pst_buf_add(out, message->data, message->len);
    add_crc(out, message->data, message->len);
}

/* Event{wall_time = 1}; what follows is the caller's. */
static void begin_event(pst_buf *message, double seconds)
{
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    pst_buf_clear(message);
    pst_buf_addc(message, 1 << 3 | 1);
    add_le(message, bits, 8);
}

/* Event{step = 2, summary = 5: Summary{value = 1: Value{tag = 1, simple_value = 2}}} */
static void add_scalar(pst_buf *message, int64_t step, const char *tag, double value)
{
    float single = (float)value;
    uint32_t bits;
    pst_buf v = {0}, summary = {0};
    memcpy(&bits, &single, sizeof bits);
    pst_buf_addc(message, 2 << 3);
    add_varint(message, (uint64_t)step);
    add_bytes(&v, 1, tag, strlen(tag));
    pst_buf_addc(&v, 2 << 3 | 5);
    add_le(&v, bits, 4);
    add_bytes(&summary, 1, v.data, v.len);
    add_bytes(message, 5, summary.data, summary.len);
    pst_buf_done(&v);
    pst_buf_done(&summary);
}

/* ---- the sink ---- */

static int tb_open(const void *opts, pst_client *client, void **ret_sink, pst_err *err)
{
    const tb_opts *o = opts;
    (void)client;
    if (!o->dir || !*o->dir)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "where to? --dir DIR");
    tb *t = pst_alloc(sizeof *t);
    int rc = sink_dir_open(o->dir, "tensorboard", &t->dir, err);
    if (rc < 0)
        free(t);
    else
        *ret_sink = t;
    return rc;
}

static int64_t tb_place(void *sink, const char *topic, int32_t partition)
{
    return sink_dir_place(((tb *)sink)->dir, topic, partition);
}

static void tb_forget(void *sink, const char *topic, int32_t partition)
{
    sink_dir_forget_place(((tb *)sink)->dir, topic, partition);
}

static void add_point(tb *t, const json_t *point)
{
    char job[101], group[101], process[101], file[340];
    const json_t *step = json_object_get(point, "step"), *epoch = json_object_get(point, "epoch");
    double seconds = (double)pst_json_int(point, "time", 0) / 1e6, turns = json_is_number(epoch) ? json_number_value(epoch) : 0;
    bool whole = json_is_number(epoch) && fabs(turns) < 9e15;
    int64_t at = json_is_integer(step) ? json_integer_value(step) : whole ? llround(turns) : pst_json_int(point, "rindex", 0);
    const char *name;
    json_t *value;
    sink_path_word(pst_json_str(point, "training_id", ""), job);
    sink_path_word(pst_json_str(point, "group", ""), group);
    sink_path_word(pst_json_str(point, "process", ""), process);
    snprintf(file, sizeof file, "%s/%s/events.out.tfevents.0.%s", job, group, process);
    pst_buf head = {0};
    begin_event(&t->message, seconds);
    add_bytes(&t->message, 3, "brain.Event:2", 13);
    frame(&head, &t->message);
    pst_buf_clear(&t->record);
    json_object_foreach(json_object_get(point, "values"), name, value)
    {
        begin_event(&t->message, seconds);
        add_scalar(&t->message, at, name, sink_number(value));
        frame(&t->record, &t->message);
    }
    if (t->record.len) {
        sink_dir_append(t->dir, file, head.data, head.len, t->record.data, t->record.len);
    }
    pst_buf_done(&head);
}

/* What is no metric point (another topic was named, somebody else wrote there) has no place in an event file. */
static int tb_take(void *sink, const sink_doc *d, pst_err *err)
{
    tb *t = sink;
    const pst_record *r = d->record;
    sink_dir_set_place(t->dir, r->topic, r->partition, r->offset + 1);
    if (!r->value)
        return 0;
    if (!json_is_object(json_object_get(d->value, "values")) || !json_is_string(json_object_get(d->value, "training_id")))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "sink", 0, "it is no MetricPoint%s%s", d->error ? ": " : "",
                           d->error ? d->error : "");
    add_point(t, d->value);
    return 0;
}

static bool tb_full(const void *sink)
{
    const tb *t = sink;
    return sink_dir_pending(t->dir) > PENDING_MAX || sink_dir_files(t->dir) >= FILES_MAX;
}

static int tb_settle(void *sink, bool final, pst_err *err)
{
    tb *t = sink;
    (void) final;
    return sink_dir_settle(t->dir, err);
}

static void tb_close(void *sink)
{
    tb *t = sink;
    sink_dir_close(t->dir);
    pst_buf_done(&t->message);
    pst_buf_done(&t->record);
    free(t);
}

const sink_ops sink_tensorboard = {.usage = &sink_tensorboard_usage,
                                   .opts_size = sizeof(tb_opts),
                                   .open = tb_open,
                                   .place = tb_place,
                                   .forget = tb_forget,
                                   .take = tb_take,
                                   .full = tb_full,
                                   .settle = tb_settle,
                                   .close = tb_close};
