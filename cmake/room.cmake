# One static library per room of the house (docs/architecture.md), and one test program beside it.

# Contraction is off so that g++ and clang, and every machine, round alike (docs/numerics.md).
add_library(linnet_flags INTERFACE)
# g++ 12 sees overlapping copies where strings are added (its bug 105651).
target_compile_options(linnet_flags INTERFACE -Wall -Wextra -ffp-contract=off -fno-math-errno
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${LINNET_WERROR}>:-Werror>)
target_include_directories(linnet_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)

# linnet_room(NAME SOURCES file... [ROOMS room...] [USES library...]): ROOMS are the rooms below this one.
function(linnet_room name)
  cmake_parse_arguments(room "" "" "SOURCES;ROOMS;USES" ${ARGN})
  add_library(linnet_${name} STATIC ${room_SOURCES})
  list(TRANSFORM room_ROOMS PREPEND linnet_)
  target_link_libraries(linnet_${name} PUBLIC linnet_flags ${room_ROOMS} PRIVATE ${room_USES})
endfunction()

# linnet_test(NAME SOURCES file... ROOMS room...): one GoogleTest program, registered with CTest.
function(linnet_test name)
  cmake_parse_arguments(test "" "" "SOURCES;ROOMS;USES;ARGUMENTS" ${ARGN})
  add_executable(${name}_test ${test_SOURCES})
  list(TRANSFORM test_ROOMS PREPEND linnet_)
  target_link_libraries(${name}_test PRIVATE ${test_ROOMS} ${test_USES} fmt::fmt GTest::gtest GTest::gtest_main)
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name}_test ${test_ARGUMENTS})
endfunction()
