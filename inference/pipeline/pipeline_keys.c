/* pipeline_keys.c - the table of pipeline_keys.h. Words stand in the order of the enums of pipeline.h. What a row cannot say (one of two
 * keys, a width that must be the model's) is checked by pipeline.c and pipeline_check.c. */
#include "inference/pipeline/pipeline_keys.h"

#include "inference/pipeline/pipeline.h"

const char *const pipeline_score_type_words[] = {"auto", "raw", "reconstruction_error", "class", NULL};
const char *const pipeline_bus_words[] = {"auto", "rdkafka", "wire", NULL};
const char *const pipeline_missing_words[] = {"reject", "value", "nan", "mean", "zeros", NULL};
const char *const pipeline_window_words[] = {"count", "mean", "deviation", "min", "max", "sum", "rate", "lag", "since", NULL};
const char *const pipeline_unknown_words[] = {"missing", "reject", "zeros", "other", NULL};

#define WORDS(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

static const pst_key rows[] = {
    {"pipeline", "name", PST_KEY_TEXT, .hi = 200, .help = "Required. Letters, digits, dot, dash, underscore."},
    {"pipeline", "input", PST_KEY_MAPPING, .help = "What is read."},
    {"pipeline", "model", PST_KEY_MAPPING, .help = "Required. What scores."},
    {"pipeline", "features", PST_KEY_LIST,
     .help = "Field by field, in the order of the model's input. Without it: the model's own mapping."},
    {"pipeline", "state", PST_KEY_MAPPING, .help = "What is kept of each key, where features have a `window`."},
    {"pipeline", "output", PST_KEY_MAPPING, .help = "Where scores go."},
    {"pipeline", "score", PST_KEY_MAPPING, .help = "What the model's output means."},
    {"pipeline", "batching", PST_KEY_MAPPING, .help = "When a batch is scored: at the first of the three limits."},
    {"pipeline", "guarantee", PST_KEY_WORD, .words = WORDS("at_least_once", "exactly_once"), .def = "at_least_once",
     .help = "exactly_once: scores and offsets in one Kafka transaction."},
    {"pipeline", "bus", PST_KEY_WORD, .words = pipeline_bus_words, .def = "auto",
     .help = "Who carries the records: `rdkafka`, librdkafka; `wire`, penstock's own client, which knows fewer properties; `auto`, "
             "librdkafka for now."},
    {"pipeline", "errors", PST_KEY_MAPPING, .help = "What becomes of records that cannot be scored."},
    {"pipeline", "rollout", PST_KEY_MAPPING, .help = "A second version beside the one in use."},
    {"pipeline", "drift", PST_KEY_MAPPING,
     .help = "Lays what the model is given beside its training data, which models of the built-in learner carry. Costs time for each "
             "feature of each record."},
    {"pipeline", "limits", PST_KEY_MAPPING, .help = "What a scorer may hold."},
    {"pipeline", "device", PST_KEY_TEXT, .form = "`auto`, `cpu`, `cuda`, `cuda:N`", .def = "auto",
     .help = "Where the model runs. A GPU computes models of one tree ensemble or of dense layers; `auto` takes it where it is "
             "quicker, `cuda` is refused where it cannot be had."},
    {"pipeline", "threads", PST_KEY_WHOLE, .lo = 1, .hi = 64, .def = "1",
     .help = "Of one run of the model: for large nets in small batches, whose products, convolutions and attention are shared out. No more "
             "than the CPUs that the "
             "scorer may use are taken; scores are the same bits whatever their number."},
    {"pipeline", "kafka", PST_KEY_MAPPING, .form = "librdkafka property: value",
     .help = "For this pipeline's clients. A published pipeline takes tuning only: see below."},

    {"input", "topics", PST_KEY_TEXTS, .help = "Topics to read."},
    {"input", "group", PST_KEY_TEXT, .help = "Consumer group. Without it: made from the pipeline's name."},
    {"input", "start", PST_KEY_TEXT, .form = "`earliest`, `latest`, `timestamp`, a time", .def = "earliest",
     .help = "Where a group begins that has no committed offsets."},
    {"input", "timestamp", PST_KEY_TEXT, .form = "a time", .help = "With `start: timestamp`: 2026-11-21T01:00:00Z, or seconds since 1970."},
    {"input", "format", PST_KEY_WORD, .words = WORDS("avro", "json"), .def = "avro",
     .help = "avro: Confluent framing with a schema registry. json: one object a record."},

    {"model", "name", PST_KEY_TEXT, .help = "A registered model; or `file`."},
    {"model", "alias", PST_KEY_TEXT,
     .help = "Followed: when it moves, the next batch is scored by the new version. Without alias and version: "
             "the newest version."},
    {"model", "version", PST_KEY_WHOLE, .lo = 1, .hi = INT32_MAX, .help = "Pins a version; not together with `alias`."},
    {"model", "file", PST_KEY_TEXT, .form = "path",
     .help = "A model file, looked for beside the pipeline file. Not in a published pipeline."},

    {"features", "field", PST_KEY_TEXT, .form = "dotted path",
     .help = "Required. Field of the record; `- cpu.user` is short for "
             "`- {field: cpu.user}`."},
    {"features", "scale", PST_KEY_NUMBER, .def = "1", .help = "The model sees x · scale + offset."},
    {"features", "offset", PST_KEY_NUMBER, .def = "0", .help = "See `scale`."},
    {"features", "missing", PST_KEY_WORD, .words = pipeline_missing_words, .def = "reject",
     .help = "For a record without a value, or with NaN for it: dead letter, `value`, NaN, the mean of the training data, or (`one_hot`) "
             "zeros in all slots."},
    {"features", "value", PST_KEY_OTHER, .form = "number, or text",
     .help = "With `missing: value`: what stands for x, before scaling; with `one_hot`: one of its words."},
    {"features", "clip", PST_KEY_OTHER, .form = "[low, high]", .help = "Limits after scaling."},
    {"features", "vocabulary", PST_KEY_OTHER, .form = "{word: number} or [word]",
     .help = "For a field of words: text, enum, whole number, boolean. A list numbers its words from 0."},
    {"features", "one_hot", PST_KEY_OTHER, .form = "[word]",
     .help = "For a field of words: a slot each, in this order, 1 for the record's word and 0 elsewhere, as pandas' `get_dummies` and "
             "scikit-learn's `OneHotEncoder` do. A `null` among them is the slot of a missing value."},
    {"features", "unknown", PST_KEY_WORD, .words = pipeline_unknown_words, .def = "missing",
     .help = "With words (`vocabulary`, `one_hot`, a model's categories), for one that is not there: as `missing` says, dead letter, "
             "(`one_hot`) zeros in all slots, or a slot of its own behind the words."},
    {"features", "categories", PST_KEY_WORD, .words = WORDS("names", "codes"), .def = "names",
     .help = "For a column whose categories the model knows by name (XGBoost from 3.1 on, LightGBM, trained on a table): names, the "
             "field's words are mapped as the library maps them, and numbers too where the names are numbers; codes, the field holds the "
             "model's "
             "codes."},
    {"features", "drop_first", PST_KEY_OTHER, .form = "`true`, `false`", .def = "false",
     .help = "With `one_hot`: the first word fills no slot, it is zeros."},
    {"features", "slots", PST_KEY_WHOLE, .lo = 1, .hi = PST_FEATURE_SLOTS_MAX,
     .help = "Inputs of the model that an array fills. Without it: 1, or what the model's width leaves for the only array."},
    {"features", "input", PST_KEY_TEXT, .help = "The model's input, where it has several."},
    {"features", "window", PST_KEY_MAPPING, .help = "Instead of the record's own value: one made of the values that its key has brought."},
    {"features", "mean", PST_KEY_OTHER, .form = "number or [number]", .help = "For `missing: mean` where the model brings no means."},

    {"features.window", "of", PST_KEY_WORD, .words = pipeline_window_words,
     .help = "Required. `deviation` is that of the population, `rate` is values a second, `lag` the value `last` values before the record, "
             "`since` the seconds from the value before it."},
    {"features.window", "last", PST_KEY_WHOLE, .lo = 1, .hi = 10000, .help = "The last so many values of the key; or `seconds`."},
    {"features.window", "seconds", PST_KEY_NUMBER, .lo = 0.001, .hi = 31536000,
     .help = "The values that are younger than this at the record's time; or `last`."},
    {"features.window", "self", PST_KEY_OTHER, .form = "`true`, `false`", .def = "true",
     .help = "false: the record's own value is not among them. Of `lag` and `since` it never is."},

    {"state", "key", PST_KEY_TEXT, .form = "dotted path",
     .help = "Field whose text or whole number is the key. Without it: the record's Kafka key."},
    {"state", "time", PST_KEY_TEXT, .form = "dotted path",
     .help = "Field with the record's time in milliseconds since 1970. Without it: the record's timestamp."},
    {"state", "topic", PST_KEY_TEXT, .help = "The compacted topic that keeps the state. Without it: the pipeline's name with `.state`."},
    {"state", "keys_max", PST_KEY_WHOLE, .lo = 1, .hi = 100e6, .def = "1000000",
     .help = "Keys of a partition; beyond it the one that was used longest ago is forgotten."},
    {"state", "bytes_max", PST_KEY_BYTES, .lo = 1 << 16, .hi = 1099511627776.0, .def = "256MiB",
     .help = "The same for what they hold together, 16 bytes a value and 160 a key."},
    {"state", "values_max", PST_KEY_WHOLE, .lo = 1, .hi = 10000, .def = "1000",
     .help = "Values of a field that are kept of a key. A window of seconds with more is cut to the newest, and counted."},
    {"state", "idle", PST_KEY_SPAN, .lo = 1e6, .hi = 315360000e6,
     .help = "A key that was silent for longer begins anew. Without it: never."},

    {"output", "topic", PST_KEY_TEXT, .help = "Required to run; not for `score dry-run`."},
    {"output", "format", PST_KEY_WORD, .words = WORDS("full", "slim"), .def = "full", .help = "slim: the score alone."},
    {"output", "passthrough", PST_KEY_TEXTS, .help = "Fields of the input record that go into the score's `record`."},

    {"score", "type", PST_KEY_WORD, .words = pipeline_score_type_words, .def = "auto",
     .help = "auto: what the model's metadata (`penstock.score`) says, else class for a classifier, else raw."},
    {"score", "threshold", PST_KEY_NUMBER,
     .help =
         "Scores above it are counted (`penstock_scorer_above_threshold_total`). Without it: the model's metadata `penstock.threshold`."},
    {"score", "non_finite", PST_KEY_WORD, .words = WORDS("pass", "dead_letter"), .def = "pass",
     .help = "A score that is NaN or infinite, or a number beyond the model's input type: counted either way."},

    {"batching", "count", PST_KEY_WHOLE, .lo = 1, .hi = 100000, .def = "512", .help = "Records."},
    {"batching", "bytes", PST_KEY_BYTES, .lo = 1, .hi = 1 << 30, .def = "1MiB", .help = "Bytes of their values."},
    {"batching", "age", PST_KEY_SPAN, .lo = 0, .hi = 60e6, .def = "5ms", .help = "How long the first record waits."},

    {"errors", "tolerance", PST_KEY_WORD, .words = WORDS("all", "none"), .def = "all",
     .help = "none: the pipeline stops at the first bad record instead of writing a dead letter."},
    {"errors", "dead_letter", PST_KEY_MAPPING, .help = "Where bad records go."},
    {"errors", "null", PST_KEY_WORD, .words = WORDS("pass", "skip", "dead_letter"), .def = "pass",
     .help = "A record without a value (tombstone): passed on, left out, or a dead letter."},
    {"errors", "pause_after", PST_KEY_WHOLE, .lo = 0, .hi = 1e9, .def = "1000",
     .help = "Dead letters in a row after which the pipeline pauses; each worker "
             "counts those of its own partitions. 0 = never."},
    {"errors.dead_letter", "topic", PST_KEY_TEXT, .help = "Without it: the input topic's name with `.dlq`."},

    {"rollout", "canary", PST_KEY_MAPPING, .help = "A version that scores a part of the records, by key, into the same output."},
    {"rollout", "shadow", PST_KEY_MAPPING, .help = "A version that scores the same records into another topic."},
    {"rollout.canary", "alias", PST_KEY_TEXT, .help = "Of the same model; or `version`."},
    {"rollout.canary", "version", PST_KEY_WHOLE, .lo = 1, .hi = INT32_MAX, .help = "See `alias`."},
    {"rollout.canary", "percent", PST_KEY_NUMBER, .lo = 0, .hi = 100, .help = "Required. The part of the records."},
    {"rollout.canary", "budget", PST_KEY_MAPPING,
     .help = "What it may cost: beyond it every scorer of the pipeline gives all records to the primary again, until the spec changes."},
    {"rollout.canary.budget", "errors", PST_KEY_TEXT, .form = "a share: `1%`",
     .help = "Of its records: those on which the model failed, or whose score was NaN or infinite."},
    {"rollout.canary.budget", "disagreement", PST_KEY_TEXT, .form = "a share: `5%`",
     .help = "Of the records of the primary that the same version scored as the shadow: those that differ. Needs a `shadow` of the same "
             "alias or version."},
    {"rollout.canary.budget", "latency", PST_KEY_SPAN, .lo = 1, .hi = 60e6, .help = "Mean time of computing one of its records."},
    {"rollout.canary.budget", "over", PST_KEY_WHOLE, .lo = 1, .hi = 1e9, .def = "1000",
     .help = "Judged once a scorer has seen so many, and then counted from 0 again."},
    {"rollout.shadow", "alias", PST_KEY_TEXT, .help = "Of the same model; or `version`."},
    {"rollout.shadow", "version", PST_KEY_WHOLE, .lo = 1, .hi = INT32_MAX, .help = "See `alias`."},
    {"rollout.shadow", "topic", PST_KEY_TEXT, .help = "Required. Where its scores go."},
    {"rollout.shadow", "tolerance", PST_KEY_NUMBER, .lo = 0, .hi = 1e300,
     .help = "Scores of shadow and primary that lie no farther apart count as equal; labels are equal or not. Without it the side of "
             "the threshold decides, and where there is none, nothing is judged."},

    {"drift", "psi", PST_KEY_NUMBER, .lo = 0.001, .hi = 100, .def = "0.2",
     .help = "A feature, or the score, whose population stability index lies beyond it is told in the log."},
    {"drift", "over", PST_KEY_WHOLE, .lo = 100, .hi = 1e9, .def = "5000", .help = "Records of a window."},

    {"limits", "inflight_bytes", PST_KEY_BYTES, .lo = 1 << 16, .hi = 1099511627776.0, .def = "64MiB",
     .help = "Records read and not yet committed; beyond it no more are fetched."},
    {"limits", "model_bytes", PST_KEY_BYTES, .lo = 1 << 10, .hi = 2147483647.0, .def = "512MiB",
     .help = "The largest model file that is loaded; a version beyond it is refused, and the one before it stays."},
    {"limits", "arena_bytes", PST_KEY_BYTES, .lo = 1 << 20, .hi = 1099511627776.0, .def = "1GiB",
     .help = "Memory of one run of the model beside its weights, for each thread that scores; records that need more are dead letters."},
};

const pst_keys pst_pipeline_keys = {rows, sizeof rows / sizeof *rows};
