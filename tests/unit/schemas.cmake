# The event schemas and the Avro reader. avro_kinds.avsc goes through avrogen like the events: a target with every shape for the plan tests.
set(kinds ${CMAKE_BINARY_DIR}/tests/kinds)
add_custom_command(OUTPUT ${kinds}/events.h ${kinds}/events.c
  COMMAND ${CMAKE_COMMAND} -E make_directory ${kinds}
  COMMAND pst_avrogen ${kinds} ${CMAKE_CURRENT_LIST_DIR}/avro_kinds.avsc
  DEPENDS pst_avrogen ${CMAKE_CURRENT_LIST_DIR}/avro_kinds.avsc)
pst_test(avro_schema SOURCES unit/test_avro_schema.c LIBS pst_schemas)
pst_test(avro_golden SOURCES unit/test_avro_golden.c LIBS pst_schemas)
pst_test(avro_plan SOURCES unit/test_avro_plan.c ${kinds}/events.c LIBS pst_schemas)
target_include_directories(test_avro_plan BEFORE PRIVATE ${CMAKE_BINARY_DIR}/tests)
pst_test(avro_compat SOURCES unit/test_avro_compat.c LIBS pst_schemas)
pst_test(avro_columns SOURCES unit/test_avro_columns.c LIBS pst_schemas)
pst_test(avro_json SOURCES unit/test_avro_json.c LIBS pst_schemas)
pst_test(avro_event SOURCES unit/test_avro_event.c LIBS pst_schemas)
# The test plays the registry, so it takes codec.c itself and not the library with the real client.
pst_test(codec SOURCES unit/test_codec.c ${CMAKE_SOURCE_DIR}/schemas/codec.c LIBS pst_schemas)
