# engine/
pst_test(engine_nodes SOURCES unit/test_engine_nodes.c LIBS pst_engine LABELS unit TIMEOUT 600)
pst_test(engine_kernels SOURCES unit/test_engine_kernels.c LIBS pst_engine LABELS unit)
pst_fuzz(onnx SOURCES fuzz/fuzz_onnx.c LIBS pst_engine)
