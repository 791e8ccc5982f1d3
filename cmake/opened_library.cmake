# pst_opened_library(<name> TARGET <library> [IN <folder below this one>] PKG <pkg-config prefix> HEADERS … CALLS … PURPOSE "…" PACKAGE <Debian's>): a shared library that is opened when it is
# first needed (common/base/library.h) in place of at every start. Writes <name>_lib.h and <name>_lib.c beside the folder's objects: the
# header includes the library's own and stands in for it; each function in CALLS becomes a pointer of the type that its header declares, so
# that the compiler checks every call as before, and a call that is not listed does not link.
# The file is named by the soname of the library built against, found as the loader finds any library of the program: never by a path or
# a setting of ours.
function(pst_opened_library name)
  cmake_parse_arguments(A "" "TARGET;IN;PKG;PURPOSE;PACKAGE" "HEADERS;CALLS" ${ARGN})
  list(GET ${A_PKG}_LINK_LIBRARIES 0 file)
  execute_process(COMMAND ${CMAKE_READELF} -d ${file} OUTPUT_VARIABLE dynamic ERROR_QUIET)
  if(NOT dynamic MATCHES "\\(SONAME\\)[^[]*\\[([^]]+)\\]")
    message(FATAL_ERROR "${file} has no soname (read with ${CMAKE_READELF}): is it a shared library?")
  endif()
  set(soname ${CMAKE_MATCH_1})
  string(TOUPPER ${name} guard)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${A_IN})
  set(at ${CMAKE_CURRENT_BINARY_DIR}/${A_IN})
  set(includes "")
  foreach(header IN LISTS A_HEADERS)
    string(APPEND includes "#include <${header}>\n")
  endforeach()
  set(members "")
  set(names "")
  set(rows "")
  foreach(call IN LISTS A_CALLS)
    string(APPEND members "    __typeof__(&${call}) ${call}_;\n")
    string(APPEND names "#undef ${call}\n#define ${call} ${name}_lib.${call}_\n")
    string(APPEND rows "        {\"${call}\", &${name}_lib.${call}_},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${at}/${name}_lib.h @ONLY CONTENT [[
/* @name@_lib.h - @soname@, opened at first use. Written by cmake/opened_library.cmake. */
#ifndef PST_@guard@_LIB_H
#define PST_@guard@_LIB_H

#include "common/base/err.h"

@includes@
struct @name@_lib {
@members@};
extern struct @name@_lib @name@_lib;
/* Before the first call, by every way in. An error is FATAL and names the cure. */
int @name@_lib_open(pst_err *err);

@names@
#endif
]])
  file(CONFIGURE OUTPUT ${at}/${name}_lib.c @ONLY CONTENT [[
/* @name@_lib.c - see @name@_lib.h. Written by cmake/opened_library.cmake. */
#include "@folder@/@name@_lib.h"

#include "common/base/library.h"

struct @name@_lib @name@_lib;

static const pst_library_call calls[] = {
@rows@};
static pst_library library = {"@soname@", "@A_PURPOSE@", "@A_PACKAGE@", calls, sizeof calls / sizeof *calls, NULL, NULL};

__attribute__((constructor)) static void announce(void)
{
    pst_library_announce(&library);
}

int @name@_lib_open(pst_err *err)
{
    return pst_library_open(&library, err);
}
]])
  target_sources(${A_TARGET} PRIVATE ${at}/${name}_lib.c)
  target_include_directories(${A_TARGET} SYSTEM PUBLIC ${${A_PKG}_INCLUDE_DIRS})
  get_filename_component(home ${file} DIRECTORY)
  if(NOT home IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES) # outside the system's folders: found where it was built against
    target_link_options(${A_TARGET} INTERFACE "LINKER:-rpath,${home}")
  endif()
endfunction()
