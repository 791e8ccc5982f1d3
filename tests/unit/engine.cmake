# engine/
pst_test(engine_nodes SOURCES unit/test_engine_nodes.c LIBS pst_engine LABELS unit TIMEOUT 600)
pst_test(engine_kernels SOURCES unit/test_engine_kernels.c LIBS pst_engine LABELS unit)
pst_test(engine_trees SOURCES unit/test_engine_trees.c LIBS pst_engine LABELS unit)
pst_test(engine_threads SOURCES unit/test_engine_threads.c LIBS pst_engine LABELS unit threads)
pst_fuzz(onnx SOURCES fuzz/fuzz_onnx.c LIBS pst_engine)
add_executable(bench_engine ${CMAKE_SOURCE_DIR}/tests/bench/engine.c)
target_link_libraries(bench_engine PRIVATE pst_engine pst_flags)
set_target_properties(bench_engine PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
