# The schema registry: core by vectors, client against servers that misbehave, client and server on an in-memory cluster. The last one has no
# label that ThreadSanitizer's suite picks: librdkafka starts its threads by C11's thrd_create, which gcc's sanitizer does not know of.
pst_test(registry_core SOURCES unit/test_registry_core.c LIBS pst_registry_core)
pst_test(registry_client SOURCES unit/test_registry_client.c LIBS pst_registry pst_loop LABELS unit threads)
pst_test(registry SOURCES unit/test_registry.c LIBS pst_embedded pst_registry pst_registry_service)
pst_fuzz(registry SOURCES fuzz/fuzz_registry.c LIBS pst_registry_core)
