pst_test(objects SOURCES unit/test_objects.c LIBS pst_objects)
pkg_check_modules(ARCHIVE REQUIRED IMPORTED_TARGET libarchive)
pst_test(archive SOURCES unit/test_archive.c LIBS pst_objects PkgConfig::ARCHIVE)
pst_test(rundir SOURCES unit/test_rundir.c LIBS pst_objects)
