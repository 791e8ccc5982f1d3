pst_test(lcm_core SOURCES unit/test_lcm_core.c LIBS pst_lcm_core)
