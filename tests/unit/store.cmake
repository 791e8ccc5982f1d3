pst_test(store_memory SOURCES unit/test_store.c LIBS pst_store ARGS memory)
pst_test(store_sqlite SOURCES unit/test_store.c LIBS pst_store ARGS sqlite)
pst_test(store_killed SOURCES unit/test_store_killed.c LIBS pst_store)
# MongoDB's protocol by mongo-java-server, fetched by Maven; any server by PENSTOCK_TEST_MONGO.
add_test(NAME store_mongodb COMMAND ${CMAKE_SOURCE_DIR}/tests/live/mongo/run $<TARGET_FILE:test_store_memory> mongodb
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(store_mongodb PROPERTIES LABELS live TIMEOUT 900 SKIP_RETURN_CODE 77)
