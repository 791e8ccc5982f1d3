/* foreign.c - files that are no model of ours are told by what they are: first by magic numbers, none of which can begin a model of ours (a ModelProto begins with one of its small field
 * numbers, XGBoost's files with '{', LightGBM's with "tree"); then what is inside of archives and of dumps that look like model files. */
#include "engine/foreign.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define EXPORT "in Python save it for loading elsewhere: XGBoost save_model(\"model.ubj\"), LightGBM booster_.save_model(\"model.txt\"), "
#define PICKLE EXPORT "scikit-learn by skl2onnx, PyTorch by torch.onnx.export"

enum { LOOK_BYTES = 1 << 20 }; /* of archives and texts */

typedef struct magic {
    const char *bytes;
    size_t len, at;
    const char *what;
} magic;
#define MAGIC(bytes, at, what)             \
    {                                      \
        bytes, sizeof(bytes) - 1, at, what \
    }

static const magic magics[] = {
    MAGIC("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9", 0, "a PyTorch file of before 1.6 (a pickle); export the model with torch.onnx.export"),
    MAGIC("\x80\x02", 0, "a Python pickle; " PICKLE),
    MAGIC("\x80\x03", 0, "a Python pickle; " PICKLE),
    MAGIC("\x80\x04", 0, "a Python pickle; " PICKLE),
    MAGIC("\x80\x05", 0, "a Python pickle; " PICKLE),
    MAGIC("binf", 0, "XGBoost's old binary format; load it with the XGBoost that wrote it (before 3.1) and save_model(\"model.ubj\")"),
    MAGIC("bs64", 0, "XGBoost's old base64 format; load it with the XGBoost that wrote it and save_model(\"model.ubj\")"),
    MAGIC("CONFIG-offset:", 0, "XGBoost's memory snapshot (a pickled booster's bytes); load it in Python and save_model(\"model.ubj\")"),
    MAGIC("CBM1", 0, "CatBoost's binary format (.cbm); save_model(\"model.onnx\", format=\"onnx\") writes one that can be read"),
    MAGIC("\x1f\x8b", 0, "compressed with gzip; gunzip it first"),
    MAGIC("BZh", 0, "compressed with bzip2; bunzip2 it first"),
    MAGIC("\xfd\x37zXZ", 0, "compressed with xz; unxz it first"),
    MAGIC("\x28\xb5\x2f\xfd", 0, "compressed with zstd; unzstd it first"),
    MAGIC("\x04\x22\x4d\x18", 0, "compressed with lz4; unlz4 it first"),
    MAGIC("\x78\x9c", 0, "compressed with zlib, as joblib does with pickles; load it in Python and export it: " PICKLE),
    MAGIC("\x78\x01", 0, "compressed with zlib, as joblib does with pickles; load it in Python and export it: " PICKLE),
    MAGIC("\x78\xda", 0, "compressed with zlib, as joblib does with pickles; load it in Python and export it: " PICKLE),
    MAGIC("7z\xbc\xaf\x27\x1c", 0, "a 7z archive; unpack it first"),
    MAGIC("\x89HDF\r\n\x1a\n", 0, "an HDF5 file, as Keras writes them; convert it with tf2onnx (python -m tf2onnx.convert --keras)"),
    MAGIC("TFL3", 4, "a TensorFlow Lite file; convert it with tf2onnx (python -m tf2onnx.convert --tflite)"),
    MAGIC("GGUF", 0, "a GGUF file; such language models are not run here, export an ONNX model"),
    MAGIC("\x93NUMPY", 0, "a NumPy array; a model is wanted: ONNX, XGBoost or LightGBM"),
    MAGIC("ustar", 257, "a tar archive; unpack it and name the model inside"),
    MAGIC("version https://git-lfs", 0, "a Git LFS pointer in place of the file; git lfs pull fetches it"),
    MAGIC("booster[", 0,
          "a text dump of XGBoost (dump_model), which cannot be loaded by anyone; save_model(\"model.ubj\") writes the model"),
    MAGIC("\x7f"
          "ELF",
          0, "a program or shared library, not a model"),
};

static bool has(const char *data, size_t len, const char *word)
{
    return memmem(data, len < LOOK_BYTES ? len : LOOK_BYTES, word, strlen(word)) != NULL;
}

/* Names of members stand in a zip's own text, at its beginning and at its end. */
static bool zip_has(const char *data, size_t len, const char *name)
{
    size_t tail = len < LOOK_BYTES ? len : LOOK_BYTES;
    return has(data, len, name) || has(data + len - tail, tail, name);
}

static const char *zip_kind(const char *data, size_t len)
{
    if (zip_has(data, len, "saved_model.pb"))
        return "a zipped TensorFlow SavedModel; unzip it and convert it with tf2onnx (python -m tf2onnx.convert --saved-model)";
    if (zip_has(data, len, "constants.pkl"))
        return "a TorchScript archive; export the model with torch.onnx.export";
    if (zip_has(data, len, "data.pkl"))
        return "a PyTorch file (torch.save); export the model with torch.onnx.export";
    if (zip_has(data, len, "model.weights.h5"))
        return "a Keras file (.keras); model.export(\"model.onnx\", format=\"onnx\") or tf2onnx writes one that can be read";
    if (zip_has(data, len, "model.ini"))
        return "an H2O MOJO archive; export the model as ONNX";
    if (zip_has(data, len, ".npy"))
        return "an archive of NumPy arrays (.npz); a model is wanted: ONNX, XGBoost or LightGBM";
    return "a zip archive; unpack it and name the model inside";
}

static const char *json_kind(const char *data, size_t len)
{
    if (*data == '[')
        return has(data, len, "\"nodeid\"")
                   ? "a JSON dump of XGBoost (dump_model), which cannot be loaded by anyone; save_model(\"model.json\") "
                     "writes the model"
                   : "a JSON list; a model is wanted: ONNX, XGBoost or LightGBM";
    if (has(data, len, "\"tree_info\"") && has(data, len, "\"tree_structure\""))
        return "a JSON dump of LightGBM (dump_model), which cannot be loaded by anyone; save_model(\"model.txt\") writes the model";
    if (has(data, len, "\"oblivious_trees\""))
        return "CatBoost's JSON; save_model(\"model.onnx\", format=\"onnx\") writes one that can be read";
    if (has(data, len, "\"class_name\"") && has(data, len, "\"keras_version\""))
        return "Keras's description of layers, without weights; model.export(\"model.onnx\", format=\"onnx\") or tf2onnx writes the model";
    return NULL;
}

static bool text_begins(const char *data, size_t len, const char *word)
{
    size_t i = 0, n = strlen(word);
    if (len > 3 && !memcmp(data, "\xef\xbb\xbf", 3))
        i = 3;
    while (i < len && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t'))
        i++;
    return len - i >= n && !strncasecmp(data + i, word, n);
}

const char *eng_foreign_kind(const void *bytes, size_t len)
{
    const char *data = bytes;
    if (!len)
        return "empty: whatever should have written it did not";
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (len >= magics[i].at + magics[i].len && !memcmp(data + magics[i].at, magics[i].bytes, magics[i].len))
            return magics[i].what;
    if (len > 4 && !memcmp(data, "PK\x03\x04", 4))
        return zip_kind(data, len);
    if (text_begins(data, len, "<") && has(data, len, "<PMML"))
        return "PMML; export the model as ONNX, or save it in its library's own format";
    if (text_begins(data, len, "<!doctype html") || text_begins(data, len, "<html"))
        return "a web page, as a download gives it that was not allowed or not found; fetch the model again";
    if (text_begins(data, len, "<"))
        return "XML; a model is wanted: ONNX, XGBoost or LightGBM";
    if (*data == '{' || *data == '[')
        return json_kind(data, len);
    if (len > 9 && data[8] == '{' && data[9] == '"' && !memcmp(data + 4, "\0\0\0\0", 4))
        return "a safetensors file: weights without a graph; export the model with torch.onnx.export";
    /* saved_model_schema_version = 1, then a MetaGraphDef: an ONNX file has strings there. */
    if (len > 3 && !memcmp(data, "\x08\x01\x12", 3) &&
        (has(data, len, "serving_default") || has(data, len, "saved_model_main_op") || has(data, len, "NoOp")))
        return "the graph of a TensorFlow SavedModel; convert its folder with tf2onnx (python -m tf2onnx.convert --saved-model)";
    return NULL;
}

const char *eng_foreign_text(const void *bytes, size_t len)
{
    const unsigned char *data = bytes;
    for (size_t i = 0; i < len && i < LOOK_BYTES; i++)
        if ((data[i] < ' ' && !memchr("\t\n\r\f", data[i], 4)) || data[i] == 0x7f)
            return NULL;
    return "a text; a model is wanted: ONNX, XGBoost's save_model(\"model.ubj\"), LightGBM's save_model(\"model.txt\")";
}
