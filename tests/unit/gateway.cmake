# The gateway's fan-out, by real sockets.
pst_test(gateway_hub SOURCES unit/test_gateway_hub.c LIBS pst_gateway LABELS unit threads)
