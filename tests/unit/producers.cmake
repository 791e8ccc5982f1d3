pst_test(bulk SOURCES unit/test_bulk.c LIBS pst_producers)
