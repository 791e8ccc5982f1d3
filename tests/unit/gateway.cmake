# The gateway's fan-out, by real sockets.
pst_test(gateway_hub SOURCES unit/test_gateway_hub.c LIBS pst_gateway LABELS unit threads)
# Routes, their description and what the server makes of them.
pst_test(gateway_routes SOURCES unit/test_gateway_routes.c LIBS pst_gateway LABELS unit threads)
# FfDL's interface: records in its shapes, who may read logs without a credential; from threads to clients.
pst_test(gateway_ffdl SOURCES unit/test_gateway_ffdl.c LIBS pst_gateway LABELS unit threads)
pst_test(gateway_pour SOURCES unit/test_gateway_pour.c LIBS pst_gateway LABELS unit threads)
# Users: the file, sessions, and every route asked by every role.
pst_test(gateway_users SOURCES unit/test_gateway_users.c LIBS pst_gateway LABELS unit threads)
pst_test(gateway_logged_out SOURCES unit/test_gateway_logged_out.c LIBS pst_gateway LABELS unit)
pst_test(gateway_sessions SOURCES unit/test_gateway_sessions.c LIBS pst_gateway LABELS unit threads)
if(NOT TARGET OpenSSL::Crypto)
  find_package(OpenSSL REQUIRED) # signs
endif()
pst_test(gateway_bearer SOURCES unit/test_gateway_bearer.c LIBS pst_gateway OpenSSL::Crypto LABELS unit)
pst_test(gateway_key_url SOURCES unit/test_gateway_key_url.c LIBS pst_gateway OpenSSL::Crypto LABELS unit threads)
# MLflow's interface: filters and orders of searches; facts, jobs and points into experiments and runs.
pst_test(mlflow_filter SOURCES unit/test_mlflow_filter.c LIBS pst_gateway LABELS unit)
pst_test(mlflow_fold SOURCES unit/test_mlflow_fold.c LIBS pst_gateway LABELS unit)

add_executable(bench_gateway_load bench/gateway/load.c)
target_link_libraries(bench_gateway_load PRIVATE pst_flags)
set_target_properties(bench_gateway_load PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
