pst_test(score_pipeline SOURCES unit/test_score_pipeline.c LIBS pst_pipeline)
