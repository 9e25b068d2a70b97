# Configures and builds a separate project, looks at the options that its own sources are compiled with, and runs it.
# SOURCE, BINARY, GENERATOR, CXX, CC, TARGET: what to build, and how. RUN: the program to run, with MODEL; none by default.
# PREFIX, KIND, VERSION: of the installed library, for find_package. LINNET: its source, for add_subdirectory.
# FORBIDDEN: a folder that must not appear among the options.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${BINARY})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${BINARY} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
  -DCMAKE_C_COMPILER=${CC} -DCMAKE_PREFIX_PATH=${PREFIX} -DLINNET_KIND=${KIND} -DLINNET_VERSION=${VERSION} -DLINNET_SOURCE=${LINNET}
  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON ${OPTIONS} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BINARY} --target ${TARGET} COMMAND_ERROR_IS_FATAL ANY)

# The lines of the sources in SOURCE and beside it.
file(STRINGS ${BINARY}/compile_commands.json lines REGEX "\"command\": .*tests/consumer/[a-z_]+/[a-z_]+\\.c")
list(LENGTH lines count)
if(count EQUAL 0)
  message(FATAL_ERROR "expected sources of the project in compile_commands.json, got none")
endif()
foreach(line IN LISTS lines)
  foreach(option -Wall -Wextra -Werror -Wno-restrict -ffp-contract -fno-math-errno -fvisibility -fopenmp ${FORBIDDEN})
    string(FIND "${line}" "${option}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "expected a command without ${option}, got ${line}")
    endif()
  endforeach()
endforeach()
# Linnet's own are optimised, also where the project has no build type.
if(LINNET)
  file(STRINGS ${BINARY}/compile_commands.json lines REGEX "\"command\": .* ${LINNET}/src/kernels/[a-z_]+\\.cc")
  if(NOT lines)
    message(FATAL_ERROR "expected the kernels of ${LINNET} in compile_commands.json, got none")
  endif()
  foreach(line IN LISTS lines)
    if(NOT line MATCHES " -O[123] ")
      message(FATAL_ERROR "expected a command with optimisation, got ${line}")
    endif()
  endforeach()
endif()

if(RUN)
  execute_process(COMMAND ${BINARY}/${RUN} ${MODEL} COMMAND_ERROR_IS_FATAL ANY)
endif()
# A program that never asks for the instruction set still obeys LINNET_ISA, with the static library too.
if(KIND STREQUAL "static" AND EXISTS ${BINARY}/tiles_only)
  execute_process(COMMAND ${BINARY}/tiles_only COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${NM} ${BINARY}/tiles_only OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  if(NOT symbols MATCHES "linnet_instruction_set_is_limited")
    message(FATAL_ERROR "expected linnet_instruction_set_is_limited in ${BINARY}/tiles_only, got a program without it")
  endif()
endif()
