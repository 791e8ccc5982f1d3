# Event loop, HTTP parser by vectors, HTTP server by raw sockets.
pst_test(loop SOURCES unit/test_loop.c LIBS pst_loop LABELS unit threads)
pst_test(http_parse SOURCES unit/test_http_parse.c LIBS pst_loop)
pst_test(http_guard SOURCES unit/test_http_guard.c LIBS pst_loop)
pst_test(http SOURCES unit/test_http.c LIBS pst_loop LABELS unit threads)
pst_fuzz(http_guard SOURCES fuzz/fuzz_http_guard.c LIBS pst_loop)
pst_fuzz(http SOURCES fuzz/fuzz_http.c LIBS pst_loop)
