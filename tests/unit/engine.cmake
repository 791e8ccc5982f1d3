# engine/
pst_test(engine_nodes SOURCES unit/test_engine_nodes.c LIBS pst_engine LABELS unit TIMEOUT 600)
