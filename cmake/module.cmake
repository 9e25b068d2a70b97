# One static library per module (docs/architecture.md), which the program and the tests link, and one test program beside
# it. src/CMakeLists.txt makes the library that is installed of the same objects.

# Contraction is off so that g++ and clang, and every machine, round alike (docs/numerics.md).
add_library(linnet_flags INTERFACE)
# g++ 12 sees overlapping copies where strings are added (its bug 105651), and in loops over the rest of a row overflows that
# cannot be, where a vector has one lane.
target_compile_options(linnet_flags INTERFACE -Wall -Wextra -ffp-contract=off -fno-math-errno
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-aggressive-loop-optimizations>
  $<$<BOOL:${LINNET_WERROR}>:-Werror>)
target_include_directories(linnet_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_include_directories(linnet_flags SYSTEM INTERFACE ${NLOHMANN_JSON_INCLUDE_DIR} ${TOMLPLUSPLUS_INCLUDE_DIR})

# In a project without a build type, which takes Linnet in with add_subdirectory: kernels without optimisation are many times as
# slow. The project's own sources are left as they are.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  target_compile_options(linnet_flags INTERFACE -O3 -DNDEBUG)
endif()

# Every kernel is compiled for each of Highway's targets from SSE4.1 on: the few older processors with SSSE3 take the plain one.
# CMAKE_CXX_FLAGS may name other targets to leave out.
if(NOT CMAKE_CXX_FLAGS MATCHES HWY_DISABLED_TARGETS)
  target_compile_definitions(linnet_flags INTERFACE HWY_DISABLED_TARGETS=HWY_SSSE3)
endif()

# Errors are formatted with fmt, in headers too.
target_link_libraries(linnet_flags INTERFACE fmt::fmt)

# In Debug fmt's headers turn optimisation on for themselves. Precompiled, they would leave the compiler's intrinsics in the
# form that only optimised code can take.
string(TOUPPER "${CMAKE_BUILD_TYPE}" linnet_build_type)
if(linnet_build_type STREQUAL "DEBUG" OR CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()

# linnet_module(NAME SOURCES file... [MODULES module...] [USES library...] [COLD]): MODULES are the modules below this one. The
# global properties LINNET_MODULES and LINNET_USES collect the modules and the libraries that they use. A COLD one has no loop
# whose speed matters, and compiles in less time with fewer optimisations.
function(linnet_module name)
  cmake_parse_arguments(module "COLD" "" "SOURCES;MODULES;USES" ${ARGN})
  add_library(linnet_${name} STATIC ${module_SOURCES})
  list(TRANSFORM module_MODULES PREPEND linnet_)
  target_link_libraries(linnet_${name} PUBLIC linnet_flags ${module_MODULES} PRIVATE ${module_USES})
  if(module_COLD)
    target_compile_options(linnet_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  # Half of the time that a small file takes to compile goes into these headers. Every file still includes what it
  # uses: the presets asan, tsan and fuzz compile without this. g++ 14 takes none that was compiled with other optimisations.
  set(precompiled linnet_precompiled)
  if(module_COLD)
    set(precompiled linnet_precompiled_cold)
  endif()
  if(TARGET ${precompiled})
    target_precompile_headers(linnet_${name} REUSE_FROM ${precompiled})
  else()
    target_precompile_headers(linnet_${name} PRIVATE <algorithm> <cmath> <functional> <memory> <optional> <span> <string>
      <vector> <fmt/format.h>)
    add_library(${precompiled} ALIAS linnet_${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY LINNET_MODULES linnet_${name})
  set_property(GLOBAL APPEND PROPERTY LINNET_USES ${module_USES})
endfunction()

# linnet_use(NAME library...): libraries that the module NAME uses where they are found.
function(linnet_use name)
  target_link_libraries(linnet_${name} PRIVATE ${ARGN})
  set_property(GLOBAL APPEND PROPERTY LINNET_USES ${ARGN})
endfunction()

# linnet_test(NAME SOURCES file... MODULES module...): one GoogleTest program, registered with CTest. Tests take most of the
# time of a build, and are compiled with fewer optimisations than the library that they test.
function(linnet_test name)
  cmake_parse_arguments(test "" "" "SOURCES;MODULES;USES;ARGUMENTS" ${ARGN})
  add_executable(${name}_test ${test_SOURCES})
  list(TRANSFORM test_MODULES PREPEND linnet_)
  target_link_libraries(${name}_test PRIVATE ${test_MODULES} ${test_USES} fmt::fmt GTest::gtest GTest::gtest_main)
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  # With -O1 g++ 12 sees copies beyond the ends of long strings (its bug 105651 again).
  target_compile_options(${name}_test PRIVATE $<$<CONFIG:Release>:-O1>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds> $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>)
  if(NOT test_MODULES)
    # Without the modules' options it could not take what was compiled with them.
  elseif(TARGET linnet_precompiled_test)
    target_precompile_headers(${name}_test REUSE_FROM linnet_precompiled_test)
  else()
    target_precompile_headers(${name}_test PRIVATE <algorithm> <cmath> <filesystem> <functional> <string> <vector>
      <gtest/gtest.h>)
    add_executable(linnet_precompiled_test ALIAS ${name}_test)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test ${test_ARGUMENTS})
endfunction()

# linnet_isa_tests(NAME [FILTER filter]): registers a test program once more for each instruction set below the best,
# which LINNET_ISA names; those that the machine lacks count as skipped, but for the plain one, which no machine lacks. The
# program has to hold support/instruction_set_test.cc. FILTER leaves out what is slow without vectors, or the same on every set.
function(linnet_isa_tests name)
  cmake_parse_arguments(isa "" "FILTER" "" ${ARGN})
  set(plain SCALAR)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    set(plain EMU128)  # Highway's choice for what it trusts the compiler with
  endif()
  if(NOT isa_FILTER)
    set(isa_FILTER *)
  endif()
  foreach(set AVX2 SSE4 ${plain})
    add_test(NAME ${name}_${set} COMMAND ${name}_test --gtest_filter=${isa_FILTER})
    set_tests_properties(${name}_${set} PROPERTIES ENVIRONMENT "LINNET_ISA=${set}" LABELS isa)
    if(NOT set STREQUAL plain)
      set_tests_properties(${name}_${set} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[LINNET_ISA\\] expected")
    endif()
  endforeach()
endfunction()
