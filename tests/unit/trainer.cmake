pst_test(manifest SOURCES unit/test_manifest.c LIBS pst_manifest)
