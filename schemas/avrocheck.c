/* avrocheck.c - run while building, on every .avsc, where avro-c is installed: what we publish must be a schema to a reader that shares no code
 * with ours. Each file is parsed, printed and parsed again as the same, and a value and a reader are made of it, which follows every name.
 * (It tolerates things that ours refuses, defaults that do not fit among them: avrogen and the unit tests look at those.)
 *
 *     pst_avrocheck FILE…        exit 0, or 1 after a line "FILE: what is wrong" for each bad one */
#include <avro.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES_MAX = 1 << 20 };

static char text[BYTES_MAX], printed[BYTES_MAX];

/* NULL if it is sound, else what is not. */
static const char *wrong(const char *bytes, size_t len)
{
    avro_schema_t schema = NULL, again = NULL;
    avro_value_iface_t *class = NULL, *reader = NULL;
    avro_writer_t out = avro_writer_memory(printed, sizeof printed);
    avro_value_t value;
    const char *why = NULL;
    if (avro_schema_from_json_length(bytes, len, &schema))
        why = avro_strerror();
    else if (avro_schema_to_json(schema, out) || avro_schema_from_json_length(printed, (size_t)avro_writer_tell(out), &again))
        why = avro_strerror();
    else if (!avro_schema_equal(schema, again))
        why = "printed and read again it is another schema";
    else if (!(class = avro_generic_class_from_schema(schema)) || avro_generic_value_new(class, &value))
        why = avro_strerror();
    else {
        avro_value_decref(&value);
        reader = avro_resolved_reader_new(schema, schema);
        why = reader ? NULL : avro_strerror();
    }
    if (reader)
        avro_value_iface_decref(reader);
    if (class)
        avro_value_iface_decref(class);
    avro_writer_free(out);
    if (again)
        avro_schema_decref(again);
    if (schema)
        avro_schema_decref(schema);
    return why;
}

int main(int argc, char **argv)
{
    int bad = 0;
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        size_t n = f ? fread(text, 1, sizeof text, f) : 0;
        const char *why = !f || ferror(f) ? "cannot be read" : n == sizeof text ? "is larger than 1 MiB" : wrong(text, n);
        if (f)
            fclose(f);
        if (why) {
            fprintf(stderr, "%s: avro-c: %s\n", argv[i], why);
            bad = 1;
        }
    }
    return bad;
}
