pst_test(sink_dir SOURCES unit/test_sink_dir.c LIBS pst_sinks)
pst_test(why SOURCES unit/test_why.c LIBS pst_client)
pst_test(sink_bulk SOURCES unit/test_sink_bulk.c LIBS pst_sinks)
