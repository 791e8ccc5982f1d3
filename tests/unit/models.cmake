pst_test(models SOURCES unit/test_models.c LIBS pst_models)
