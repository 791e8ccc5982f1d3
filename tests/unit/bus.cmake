# common/bus: configuration and classes without a broker, behaviour on librdkafka's in-memory cluster, guarantees on a real Kafka.
pst_test(bus_conf SOURCES unit/test_bus_conf.c LIBS pst_bus LABELS unit)
pst_test(bus_mock SOURCES mock/test_bus_mock.c LIBS pst_bus LABELS mock TIMEOUT 180)
pst_test(bus_live SOURCES live/test_bus_live.c LIBS pst_bus LABELS live TIMEOUT 300)
pst_test(bus_succession SOURCES live/test_bus_succession.c LIBS pst_bus LABELS live TIMEOUT 180)
pst_test(bus_txn_class SOURCES unit/test_bus_txn_class.c LIBS pst_bus LABELS unit)
pst_test(bus_mock_txn SOURCES mock/test_bus_mock_txn.c LIBS pst_bus LABELS mock TIMEOUT 240)
pst_test(bus_faults SOURCES live/test_bus_faults.c LIBS pst_bus LABELS live slow TIMEOUT 400)
pst_test(bus_security SOURCES live/test_bus_security.c LIBS pst_bus LABELS live TIMEOUT 240)
