pst_test(sink_dir SOURCES unit/test_sink_dir.c LIBS pst_sinks)
