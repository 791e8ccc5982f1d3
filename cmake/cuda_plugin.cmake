# libpenstock-cuda.so: the kernels of engine/cuda with the CUDA runtime in it, opened at run time. PST_WITH_CUDA=ON; included by engine/CMakeLists.txt.
# The compiler is CMAKE_CUDA_COMPILER if that is set, else the one that deploy/cuda/toolkit finds. No device and no driver is needed to build.
#
# Native code for A100 and H100/H200, PTX for what comes after. libcuda and NVML are never linked: the one has no stub in the wheels, and both
# would have to be there wherever the plug-in is opened. find_package(CUDAToolkit) is not asked: that of CMake 3.25 fails on CUDA 13.
# AUTO was the default before there was a plug-in: it stands in the cache of every build folder of then, and means OFF as it did.
if(NOT PST_WITH_CUDA MATCHES "^(ON|OFF|AUTO)$")
  message(FATAL_ERROR "PST_WITH_CUDA=${PST_WITH_CUDA}: it is ON or OFF")
endif()
if(NOT PST_WITH_CUDA STREQUAL "ON")
  pst_feature("CUDA kernels: not built, models run on the CPU (./quickstart build --cuda, or PST_WITH_CUDA=ON)")
  return()
endif()
if(IS_ABSOLUTE "${CMAKE_CUDA_COMPILER}" AND NOT EXISTS "${CMAKE_CUDA_COMPILER}")
  message(FATAL_ERROR "PST_WITH_CUDA=ON: ${CMAKE_CUDA_COMPILER} is gone; name another with cmake --fresh, or set PST_WITH_CUDA=OFF")
endif()
if(NOT CMAKE_CUDA_COMPILER)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/deploy/cuda/toolkit find OUTPUT_VARIABLE toolkit OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "PST_WITH_CUDA=ON: there is no CUDA toolkit; `deploy/cuda/toolkit fetch` gets one")
  endif()
  set(CMAKE_CUDA_COMPILER ${toolkit}/bin/nvcc CACHE FILEPATH "nvcc")
endif()
set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
enable_language(CUDA)
add_library(penstock_cuda MODULE cuda/plugin.cu cuda/trees.cu cuda/net.cu)
target_include_directories(penstock_cuda PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(penstock_cuda PRIVATE PST_VERSION="${PROJECT_VERSION}" "PST_CUDA_TARGETS=\"sm_80 sm_90 compute_90\"")
# No fused multiply-add where the CPU has none: sums are to be equal bit for bit.
target_compile_options(penstock_cuda PRIVATE --fmad=false -Xcompiler=-Wall,-Wextra $<$<BOOL:${PST_WERROR}>:--Werror=all-warnings>)
set_target_properties(penstock_cuda PROPERTIES OUTPUT_NAME penstock-cuda CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
  CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
# What the static runtime and the C++ library in it define is nobody's business: one name is exported.
target_link_options(penstock_cuda PRIVATE LINKER:--exclude-libs,ALL LINKER:-z,relro LINKER:-z,now)
install(TARGETS penstock_cuda LIBRARY DESTINATION lib)
pst_feature("CUDA kernels: libpenstock-cuda.so by ${CMAKE_CUDA_COMPILER} (${CMAKE_CUDA_COMPILER_VERSION}), for models of one tree ensemble or of dense layers")
