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
pst_test(access SOURCES unit/test_access.c LIBS pst_schemas)
pst_test(avro_event SOURCES unit/test_avro_event.c LIBS pst_schemas)
# The test plays the registry, so it takes codec.c itself and not the library with the real client.
pst_test(codec SOURCES unit/test_codec.c ${CMAKE_SOURCE_DIR}/schemas/codec.c LIBS pst_schemas LABELS unit threads)
# Against fastavro, through a pipe: run by whichever Python has it.
add_executable(avro_peer unit/avro_peer.c ${kinds}/events.c)
target_include_directories(avro_peer BEFORE PRIVATE ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(avro_peer PRIVATE pst_schemas pst_flags m)
set_target_properties(avro_peer PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
find_program(PYTHON3 python3)
if(PYTHON3)
  add_test(NAME avro_fastavro COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/../live/test_avro_fastavro.py WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(avro_fastavro PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77 ENVIRONMENT "PENSTOCK_BUILD=${CMAKE_BINARY_DIR}")
endif()
# Against avro-c, on valid data (it crashes on some of the hostile bytes that ours must refuse).
pkg_check_modules(AVRO IMPORTED_TARGET avro-c)
if(AVRO_FOUND)
  pst_test(avro_oracle SOURCES unit/test_avro_oracle.c LIBS pst_schemas PkgConfig::AVRO)
  add_executable(bench_avro bench/bench_avro.c)
  target_link_libraries(bench_avro PRIVATE pst_schemas pst_flags PkgConfig::AVRO)
  set_target_properties(bench_avro PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
else()
  pst_feature("avro-c: not found; test avro_oracle and bench_avro are left out (apt install libavro-dev)")
endif()
pst_fuzz(avro_schema SOURCES fuzz/fuzz_avro_schema.c LIBS pst_schemas)
pst_fuzz(avro_decode SOURCES fuzz/fuzz_avro_decode.c LIBS pst_schemas)
