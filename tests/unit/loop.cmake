# Event loop, HTTP parser by vectors, HTTP server by raw sockets.
pst_test(loop SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_loop.c LIBS pst_loop LABELS unit threads)
pst_test(http_parse SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_http_parse.c LIBS pst_loop)
pst_test(http SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_http.c LIBS pst_loop LABELS unit threads)
