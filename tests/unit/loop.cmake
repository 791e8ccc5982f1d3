# Event loop, HTTP parser by vectors, HTTP server by raw sockets.
pst_test(loop SOURCES unit/test_loop.c LIBS pst_loop LABELS unit threads)
pst_test(http_parse SOURCES unit/test_http_parse.c LIBS pst_loop)
pst_test(http_guard SOURCES unit/test_http_guard.c LIBS pst_loop)
pst_test(multipart SOURCES unit/test_multipart.c LIBS pst_loop)
pst_test(ws_frame SOURCES unit/test_ws_frame.c LIBS pst_loop)
pst_test(http_ws SOURCES unit/test_http_ws.c LIBS pst_loop LABELS unit threads)
pst_test(http SOURCES unit/test_http.c LIBS pst_loop LABELS unit threads)
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET openssl) # the client's
pst_test(http_tls SOURCES unit/test_http_tls.c LIBS pst_loop PkgConfig::OPENSSL LABELS unit threads)
pst_fuzz(http_guard SOURCES fuzz/fuzz_http_guard.c LIBS pst_loop)
pst_fuzz(http SOURCES fuzz/fuzz_http.c LIBS pst_loop)
pst_fuzz(multipart SOURCES fuzz/fuzz_multipart.c LIBS pst_loop)
pst_fuzz(ws_frame SOURCES fuzz/fuzz_ws_frame.c LIBS pst_loop)
