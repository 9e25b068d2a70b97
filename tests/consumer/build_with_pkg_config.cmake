# Builds and runs the C and the C++ program with what pkg-config prints.
# SOURCE, BINARY, CXX, CC, PKG_CONFIG; PREFIX, LIBDIR, KIND: of the installed library; MODEL.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${BINARY})
file(MAKE_DIRECTORY ${BINARY})
# Linnet's file alone, which needs no other and hands on no compiler options.
set(ENV{PKG_CONFIG_LIBDIR} ${PREFIX}/${LIBDIR}/pkgconfig)
unset(ENV{PKG_CONFIG_PATH})
execute_process(COMMAND ${PKG_CONFIG} --cflags linnet OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
if(NOT flags MATCHES "^-I[^ ]+$")
  message(FATAL_ERROR "expected the folder of the headers alone from pkg-config --cflags, got ${flags}")
endif()
set(static "")
if(KIND STREQUAL "static")
  set(static --static)
endif()
execute_process(COMMAND ${PKG_CONFIG} ${static} --cflags --libs linnet OUTPUT_VARIABLE options
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(KIND STREQUAL "static")
  # Beside a shared library of that name -llinnet is the shared one.
  string(REPLACE "-llinnet" "-l:liblinnet.a" options "${options}")
endif()
separate_arguments(options UNIX_COMMAND "${options}")
execute_process(COMMAND ${CXX} -std=c++20 ${SOURCE}/cpp/main.cc -o ${BINARY}/consumer_cpp ${options}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CC} -std=c99 -pedantic-errors ${SOURCE}/c/main.c -o ${BINARY}/consumer_c ${options}
  COMMAND_ERROR_IS_FATAL ANY)
set(ENV{LD_LIBRARY_PATH} ${PREFIX}/${LIBDIR})
foreach(language cpp c)
  execute_process(COMMAND ${BINARY}/consumer_${language} ${MODEL} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
