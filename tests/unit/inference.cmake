pst_test(score_pipeline SOURCES unit/test_score_pipeline.c LIBS pst_pipeline)
pst_test(score_core SOURCES unit/test_score_core.c LIBS pst_scorer)
