# The Lifecycle Manager and the supervisors that it starts.
pst_test(lcm_core SOURCES unit/test_lcm_core.c LIBS pst_lcm)
pst_test(lcm_node SOURCES unit/test_lcm_node.c LIBS pst_lcm)
pst_test(lcm_launcher SOURCES unit/test_lcm_launcher.c LIBS pst_lcm)
pst_test(supervisor_text SOURCES unit/test_supervisor_text.c LIBS pst_supervisor)
pst_test(supervisor_outlet SOURCES unit/test_supervisor_outlet.c LIBS pst_supervisor)
pst_test(supervisor_run SOURCES unit/test_supervisor_run.c unit/supervisor_world.c LIBS pst_supervisor)
pst_test(supervisor_box SOURCES unit/test_supervisor_box.c unit/supervisor_world.c LIBS pst_supervisor LABELS unit slow)
pst_fuzz(learner_output SOURCES fuzz/fuzz_learner_output.c LIBS pst_supervisor)
