# trainer/learner/, common/base/csv, producers/sources
pst_test(learner_net SOURCES unit/test_learner_net.c LIBS pst_learner)
pst_test(learner_settings SOURCES unit/test_learner_settings.c LIBS pst_learner)
pst_test(learner_data SOURCES unit/test_learner_data.c LIBS pst_learner)
pst_test(learner_checkpoint SOURCES unit/test_learner_checkpoint.c LIBS pst_learner)
pst_test(learner_job SOURCES unit/test_learner_job.c LIBS pst_learner pst_scorer)
pst_test(source_proc SOURCES unit/test_source_proc.c LIBS pst_sources)
pst_fuzz(csv SOURCES fuzz/fuzz_csv.c LIBS pst_base)
pst_fuzz(checkpoint SOURCES fuzz/fuzz_checkpoint.c LIBS pst_learner)
