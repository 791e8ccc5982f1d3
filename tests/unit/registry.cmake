# The schema registry: core by vectors, client against the server on an in-memory cluster.
pst_test(registry_core SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_registry_core.c LIBS pst_registry_core)
pst_test(registry SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_registry.c LIBS pst_registry pst_registry_service LABELS unit mock)
