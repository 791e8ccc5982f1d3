# common/bus: configuration and classes without a broker, behaviour on librdkafka's in-memory cluster, guarantees on a real Kafka.
# Some ask librdkafka what the bus does not, and so link it.
pkg_check_modules(RDKAFKA REQUIRED IMPORTED_TARGET rdkafka)
pst_test(bus_conf SOURCES unit/test_bus_conf.c LIBS pst_bus PkgConfig::RDKAFKA LABELS unit)
pst_test(wire_producer SOURCES unit/test_wire_producer.c unit/wire_fake_net.c LIBS pst_bus LABELS unit)
pst_test(wire_out SOURCES live/test_wire_out.c live/bus_live.c LIBS pst_bus LABELS live TIMEOUT 900)
pst_test(bus_mock SOURCES mock/test_bus_mock.c LIBS pst_embedded LABELS mock TIMEOUT 900)
pst_test(bus_mock_client SOURCES mock/test_bus_mock_client.c LIBS pst_embedded LABELS mock TIMEOUT 900)
pst_test(bus_live SOURCES live/test_bus_live.c live/bus_live.c LIBS pst_bus PkgConfig::RDKAFKA LABELS live TIMEOUT 1500)
add_test(NAME bus_live_wire COMMAND test_bus_live WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}) # the same by our own client
set_tests_properties(bus_live_wire PROPERTIES LABELS live TIMEOUT 1500 SKIP_RETURN_CODE 77 ENVIRONMENT "PENSTOCK_BUILD=${CMAKE_BINARY_DIR};PENSTOCK_BUS=wire")
pst_test(bus_begin SOURCES live/test_bus_begin.c live/bus_live.c LIBS pst_bus PkgConfig::RDKAFKA LABELS live TIMEOUT 900)
pst_test(bus_succession SOURCES live/test_bus_succession.c LIBS pst_bus LABELS live TIMEOUT 900)
pst_test(bus_txn_class SOURCES unit/test_bus_txn_class.c LIBS pst_bus PkgConfig::RDKAFKA LABELS unit)
pst_test(bus_mock_txn SOURCES mock/test_bus_mock_txn.c LIBS pst_embedded LABELS mock TIMEOUT 900)
pst_test(bus_mock_round SOURCES mock/test_bus_mock_round.c LIBS pst_embedded LABELS mock TIMEOUT 900)
target_link_options(test_bus_mock_round PRIVATE LINKER:--wrap=pst_mono_us) # minutes pass when the test says so
pst_test(bus_faults SOURCES live/test_bus_faults.c LIBS pst_bus LABELS live slow TIMEOUT 1500)
pst_test(bus_wipe SOURCES live/test_bus_wipe.c LIBS pst_bus PkgConfig::RDKAFKA LABELS live TIMEOUT 900)
pst_test(bus_leave SOURCES live/test_bus_leave.c live/bus_live.c LIBS pst_bus LABELS live TIMEOUT 900)
pst_test(bus_security SOURCES live/test_bus_security.c LIBS pst_bus LABELS live TIMEOUT 900)
# These wait for groups to form (three seconds each on the in-memory cluster) and compute nothing: begun first, they wait beside what computes.
set_tests_properties(bus_mock_round bus_mock bus_mock_txn PROPERTIES COST 60)
pst_test(wire_bytes SOURCES unit/test_wire_bytes.c LIBS pst_bus LABELS unit)
pst_test(wire_batch SOURCES unit/test_wire_batch.c LIBS pst_bus LABELS unit)
pst_test(wire_conf SOURCES unit/test_wire_conf.c LIBS pst_bus PkgConfig::RDKAFKA LABELS unit)
pst_test(wire_where SOURCES live/test_wire_where.c LIBS pst_bus LABELS live TIMEOUT 900)
pst_test(wire_share SOURCES unit/test_wire_share.c LIBS pst_bus LABELS unit)
pst_test(wire_net SOURCES unit/test_wire_net.c unit/wire_peer.c LIBS pst_bus LABELS unit)
pst_fuzz(wire_meta SOURCES fuzz/fuzz_wire_meta.c LIBS pst_bus)
pst_test(wire_meta SOURCES unit/test_wire_meta.c LIBS pst_bus LABELS unit)
# It plays the net itself: its functions stand before those of the library.
pst_test(wire_fetch SOURCES unit/test_wire_fetch.c LIBS pst_bus LABELS unit)
pst_test(wire_consumer SOURCES live/test_wire_consumer.c live/bus_live.c LIBS pst_bus PkgConfig::RDKAFKA LABELS live TIMEOUT 900)
