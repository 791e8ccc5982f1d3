# libpenstock-engine: the engine as a library of its own, shared and static, with one header and a pkg-config file.
# Included by engine/CMakeLists.txt when the engine is built alone. What is promised: engine/README.md.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(engine_soversion 0) # the number in engine/penstock-engine.map
set(engine_dir ${CMAKE_CURRENT_SOURCE_DIR})
set(engine_gen ${CMAKE_CURRENT_BINARY_DIR}/install)

# The installed header stands alone: what it includes of ours is put in its place. One source of truth, no copy to keep in step.
set(inner ${CMAKE_SOURCE_DIR}/common/base/err_type.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${engine_dir}/penstock_engine.h ${inner})
file(READ ${engine_dir}/penstock_engine.h header)
file(READ ${inner} errors)
string(REPLACE "#include \"common/base/err_type.h\"\n" "${errors}" header "${header}")
string(REGEX MATCH "#include \"[^\n]*" left "${header}")
if(left)
  message(FATAL_ERROR "engine/penstock_engine.h cannot be installed: it still has ${left}")
endif()
file(CONFIGURE OUTPUT ${engine_gen}/penstock_engine.h CONTENT "${header}" @ONLY)

# Objects are compiled once; the shared library exports what the map names, whatever else is in it.
add_library(penstock_engine SHARED $<TARGET_OBJECTS:pst_engine>)
target_link_libraries(penstock_engine PRIVATE pst_base PkgConfig::PROTOBUFC m Threads::Threads)
target_link_options(penstock_engine PRIVATE -Wl,--version-script=${engine_dir}/penstock-engine.map -Wl,-Bsymbolic-functions
  -Wl,--as-needed -Wl,-z,relro -Wl,-z,now)
if(PST_SANITIZE)
  target_link_options(penstock_engine PRIVATE -fsanitize=${PST_SANITIZE})
else()
  target_link_options(penstock_engine PRIVATE -Wl,-z,defs)
endif()
set_target_properties(penstock_engine PROPERTIES OUTPUT_NAME penstock-engine LINKER_LANGUAGE C LINK_DEPENDS ${engine_dir}/penstock-engine.map
  VERSION ${PROJECT_VERSION} SOVERSION ${engine_soversion} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
add_library(penstock_engine_static STATIC $<TARGET_OBJECTS:pst_engine> $<TARGET_OBJECTS:pst_base>)
set_target_properties(penstock_engine_static PROPERTIES OUTPUT_NAME penstock-engine LINKER_LANGUAGE C
  ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

# Paths are relative to the files themselves: an installed tree may be moved as a whole.
set(engine_requires "libprotobuf-c")
file(RELATIVE_PATH engine_up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" engine_up "${engine_up}")
configure_file(${CMAKE_SOURCE_DIR}/cmake/penstock-engine.pc.in ${engine_gen}/penstock-engine.pc @ONLY)
configure_file(${CMAKE_SOURCE_DIR}/cmake/penstock-engine-config.cmake.in ${engine_gen}/penstock-engine-config.cmake @ONLY)
write_basic_package_version_file(${engine_gen}/penstock-engine-config-version.cmake COMPATIBILITY SameMajorVersion)

install(TARGETS penstock_engine penstock_engine_static LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${engine_gen}/penstock_engine.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${engine_gen}/penstock-engine.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${engine_gen}/penstock-engine-config.cmake ${engine_gen}/penstock-engine-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/penstock-engine)
