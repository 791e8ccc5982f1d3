/* test_avro_oracle.c - our reader against avro-c's on random schemas and valid random data: the same values, and avro-c writes the bytes that
 * we wrote. Seed and count: PENSTOCK_TEST_SEED, PENSTOCK_TEST_CASES. */
#include "avro_kit.h"

#include <avro.h>
#include <math.h>

static uint64_t seed;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % n;
}

typedef struct {
    pst_buf text;
    int names;
    bool unions;
} maker;

static void make_schema(maker *m, int depth);

static void make_union(maker *m, int depth)
{
    static const char *const simple[] = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"};
    uint32_t first = rnd(8), n = 1 + rnd(4);
    m->unions = true;
    pst_buf_addc(&m->text, '[');
    for (uint32_t i = 0; i < n; i++)
        pst_buf_printf(&m->text, "%s\"%s\"", i ? "," : "", simple[(first + i) % 8]);
    if (rnd(2) && depth > 0) {
        pst_buf_adds(&m->text, ",{\"type\":\"array\",\"items\":");
        make_schema(m, depth - 1);
        pst_buf_addc(&m->text, '}');
    }
    pst_buf_addc(&m->text, ']');
}

static void make_schema(maker *m, int depth)
{
    static const char *const simple[] = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"};
    uint32_t pick = rnd(depth > 0 ? 15 : 10);
    pst_buf *b = &m->text;
    if (pick < 8) {
        pst_buf_printf(b, "\"%s\"", simple[pick]);
    } else if (pick == 8) {
        pst_buf_printf(b, "{\"type\":\"fixed\",\"name\":\"F%d\",\"size\":%u}", m->names++, 1 + rnd(9));
    } else if (pick == 9) {
        pst_buf_printf(b, "{\"type\":\"enum\",\"name\":\"E%d\",\"symbols\":[\"A\",\"B\",\"C\"]}", m->names++);
    } else if (pick == 10 || pick == 11) {
        pst_buf_printf(b, "{\"type\":\"%s\",\"%s\":", pick == 10 ? "array" : "map", pick == 10 ? "items" : "values");
        make_schema(m, depth - 1);
        pst_buf_addc(b, '}');
    } else if (pick == 12) {
        make_union(m, depth);
    } else {
        uint32_t n = 1 + rnd(5);
        pst_buf_printf(b, "{\"type\":\"record\",\"name\":\"R%d\",\"fields\":[", m->names++);
        for (uint32_t i = 0; i < n; i++) {
            pst_buf_printf(b, "%s{\"name\":\"f%u\",\"type\":", i ? "," : "", i);
            make_schema(m, depth - 1);
            pst_buf_addc(b, '}');
        }
        pst_buf_adds(b, "]}");
    }
}

/* Random valid bytes, straight from avro-c's schema; counts are split into blocks, some with a byte size. */
static void make_data(avro_schema_t s, pst_buf *out)
{
    uint8_t raw[16];
    for (size_t i = 0; i < sizeof raw; i++)
        raw[i] = (uint8_t)rnd(256);
    int64_t wide;
    memcpy(&wide, raw, sizeof wide);
    switch (avro_typeof(s)) {
    case AVRO_NULL: return;
    case AVRO_BOOLEAN: pst_buf_addc(out, (char)rnd(2)); return;
    case AVRO_INT32: pst_avro_put_long(out, rnd(2) ? (int32_t)wide : (int32_t)rnd(300) - 150); return;
    case AVRO_INT64: pst_avro_put_long(out, rnd(2) ? wide : wide >> rnd(60)); return;
    case AVRO_FLOAT: pst_avro_put_float(out, (float)(int32_t)wide / 64); return;
    case AVRO_DOUBLE: pst_avro_put_double(out, (double)wide / 1024); return;
    case AVRO_STRING: pst_avro_put_bytes(out, "text of a field", rnd(16)); return;
    case AVRO_BYTES: pst_avro_put_bytes(out, raw, rnd(16)); return;
    case AVRO_FIXED: pst_buf_add(out, raw, (size_t)avro_schema_fixed_size(s)); return;
    case AVRO_ENUM: pst_avro_put_long(out, rnd(3)); return;
    case AVRO_RECORD:
        for (size_t i = 0; i < avro_schema_record_size(s); i++)
            make_data(avro_schema_record_field_get_by_index(s, (int)i), out);
        return;
    case AVRO_UNION: {
        uint32_t at = rnd((uint32_t)avro_schema_union_size(s));
        pst_avro_put_long(out, at);
        make_data(avro_schema_union_branch(s, (int)at), out);
        return;
    }
    case AVRO_ARRAY:
    case AVRO_MAP:
        for (uint32_t block = rnd(3), key = 0; block > 0; block--) {
            pst_buf items = {0};
            uint32_t n = 1 + rnd(3);
            for (uint32_t i = 0; i < n; i++) {
                if (avro_typeof(s) == AVRO_MAP) {
                    char name[16];
                    snprintf(name, sizeof name, "key%u", key++);
                    pst_avro_put_bytes(&items, name, strlen(name));
                }
                make_data(avro_typeof(s) == AVRO_MAP ? avro_schema_map_values(s) : avro_schema_array_items(s), &items);
            }
            bool sized = rnd(2);
            pst_avro_put_long(out, sized ? -(int64_t)n : (int64_t)n);
            if (sized)
                pst_avro_put_long(out, (int64_t)items.len);
            pst_buf_add(out, items.data, items.len);
            pst_buf_done(&items);
        }
        pst_avro_put_long(out, 0);
        return;
    default: fail_msg("unexpected type");
    }
}

static pst_buf bytes_from_json(const json_t *j)
{
    pst_buf b = {0};
    const char *s = json_string_value(j);
    if (!strncmp(s, "base64:", 7)) {
        size_t n;
        void *p = pst_base64_decode(s + 7, &n);
        pst_buf_add(&b, p, n);
        free(p);
    } else {
        pst_buf_add(&b, s, json_string_length(j));
    }
    pst_buf_reserve(&b, 0);
    return b;
}

static void same(avro_value_t *v, const json_t *j);

static void same_items(avro_value_t *v, const json_t *j)
{
    size_t n = 0;
    avro_value_get_size(v, &n);
    bool array = avro_value_get_type(v) == AVRO_ARRAY;
    assert_int_equal(n, array ? json_array_size(j) : json_object_size(j));
    for (size_t i = 0; i < n; i++) {
        avro_value_t item;
        const char *name = NULL;
        avro_value_get_by_index(v, i, &item, &name);
        same(&item, array ? json_array_get(j, i) : json_object_get(j, name));
    }
}

static void same(avro_value_t *v, const json_t *j)
{
    const char *text;
    const void *data;
    size_t n = 0; /* avro-c's calls leave them alone on failure */
    int i32 = 0;
    int64_t i64 = 0;
    float f = 0;
    double d = 0;
    assert_non_null(j);
    switch (avro_value_get_type(v)) {
    case AVRO_NULL: assert_true(json_is_null(j)); return;
    case AVRO_BOOLEAN:
        avro_value_get_boolean(v, &i32);
        assert_int_equal(i32, json_is_true(j));
        return;
    case AVRO_INT32:
        avro_value_get_int(v, &i32);
        assert_true(json_is_integer(j) && json_integer_value(j) == i32);
        return;
    case AVRO_INT64:
        avro_value_get_long(v, &i64);
        assert_true(json_is_integer(j) && json_integer_value(j) == i64);
        return;
    case AVRO_FLOAT:
        avro_value_get_float(v, &f);
        assert_true((float)json_real_value(j) == f);
        return;
    case AVRO_DOUBLE:
        avro_value_get_double(v, &d);
        assert_true(json_real_value(j) == d);
        return;
    case AVRO_STRING:
        avro_value_get_string(v, &text, &n);
        assert_string_equal(text, json_string_value(j));
        return;
    case AVRO_ENUM:
        avro_value_get_enum(v, &i32);
        assert_string_equal(avro_schema_enum_get(avro_value_get_schema(v), i32), json_string_value(j));
        return;
    case AVRO_BYTES:
    case AVRO_FIXED: {
        if (avro_value_get_type(v) == AVRO_BYTES)
            avro_value_get_bytes(v, &data, &n);
        else
            avro_value_get_fixed(v, &data, &n);
        pst_buf b = bytes_from_json(j);
        assert_int_equal(b.len, n);
        assert_memory_equal(b.data, data, n);
        pst_buf_done(&b);
        return;
    }
    case AVRO_UNION: {
        avro_value_t branch;
        avro_value_get_current_branch(v, &branch);
        same(&branch, j);
        return;
    }
    default: same_items(v, j);
    }
}

static void one_case(void)
{
    maker m = {0};
    avro_schema_t theirs;
    pst_schema *ours = NULL;
    pst_buf data = {0}, again = {0};
    pst_err err = {0};
    json_t *j = NULL;
    make_schema(&m, 3);
    /* avro-c's parser wants an object or array at the top */
    char *text = *m.text.data == '"' ? pst_sprintf("{\"type\":%s}", m.text.data) : pst_strdup(m.text.data);
    if (avro_schema_from_json_length(text, strlen(text), &theirs))
        fail_msg("avro-c refuses %s: %s", text, avro_strerror());
    if (pst_schema_parse(text, strlen(text), &ours, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    make_data(theirs, &data);
    pst_buf_reserve(&data, 0);
    avro_value_iface_t *iface = avro_generic_class_from_schema(theirs);
    avro_value_t v;
    avro_generic_value_new(iface, &v);
    avro_reader_t reader = avro_reader_memory(data.data, (int64_t)data.len);
    if (avro_value_read(reader, &v))
        fail_msg("avro-c cannot read its data by %s: %s", text, avro_strerror());
    if (pst_avro_to_json(ours, data.data, data.len, &j, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    same(&v, j);
    /* back from JSON where no union hides which branch it was: avro-c must write the same bytes */
    if (!m.unions) {
        size_t size = 0;
        avro_value_sizeof(&v, &size);
        void *room = pst_alloc(size + 1);
        avro_writer_t writer = avro_writer_memory(room, (int64_t)size);
        assert_int_equal(avro_value_write(writer, &v), 0);
        if (pst_avro_from_json(ours, j, &again, &err) < 0)
            fail_msg("%s: %s", text, err.text);
        assert_int_equal(again.len, size);
        assert_true(!size || !memcmp(again.data, room, size));
        avro_writer_free(writer);
        free(room);
    }
    json_decref(j);
    avro_reader_free(reader);
    avro_value_decref(&v);
    avro_value_iface_decref(iface);
    avro_schema_decref(theirs);
    pst_schema_free(ours);
    pst_buf_done(&data);
    pst_buf_done(&again);
    pst_buf_done(&m.text);
    free(text);
}

static void test_oracle_reads_the_same_values(void **state)
{
    const char *s = getenv("PENSTOCK_TEST_SEED"), *n = getenv("PENSTOCK_TEST_CASES");
    uint64_t first = s ? strtoull(s, NULL, 10) : 20261121;
    long cases = n ? atol(n) : 5000;
    print_message("seed %llu, %ld cases\n", (unsigned long long)first, cases);
    for (long i = 0; i < cases; i++) {
        seed = first * 1000003u + (uint64_t)i;
        one_case();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_oracle_reads_the_same_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
