# Every public header compiles alone without warnings, as C++20, and those of the C interface as C99; so do views and options that
# a program names members of.
# PREFIX, CXX, CC, BINARY.
cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY ${BINARY})
file(GLOB headers RELATIVE ${PREFIX}/include ${PREFIX}/include/linnet/*.h)
list(LENGTH headers count)
if(count LESS 10)
  message(FATAL_ERROR "expected the public headers in ${PREFIX}/include/linnet, got ${count}")
endif()
set(warnings -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -pedantic-errors -Werror -fsyntax-only -I ${PREFIX}/include)
foreach(header IN LISTS headers)
  file(WRITE ${BINARY}/alone.cc "#include \"${header}\"\n")
  execute_process(COMMAND ${CXX} -std=c++20 ${warnings} ${BINARY}/alone.cc RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(SEND_ERROR "expected ${header} to compile alone as C++20, got errors")
  endif()
endforeach()
file(WRITE ${BINARY}/used.cc [[
#include "linnet/linnet.h"
float use(linnet::Tensor& tensor, linnet::View<float> view) {
  linnet::View<const float> part = view.slice(0, 0, 1).reshape({2, 3});
  tensor.view<float>()(0, 1) = part(1, 2) + *view.at(0);
  return view.empty() || !view.dense() ? 0 : static_cast<float>(view.extent(0) + view.stride(0));
}
linnet::Batch batch{.examples = 1, .length = 2};
linnet::TrainingCallbacks callbacks{.on_message = {}};
linnet::AttentionGradients gradients{.query = {}};
]])
execute_process(COMMAND ${CXX} -std=c++20 ${warnings} ${BINARY}/used.cc RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(SEND_ERROR "expected a program's use of views and options to compile, got errors")
endif()
foreach(header linnet/c_api.h linnet/export.h linnet/version.h)
  file(WRITE ${BINARY}/alone.c "#include \"${header}\"\nint linnet_alone;\n")
  execute_process(COMMAND ${CC} -std=c99 ${warnings} ${BINARY}/alone.c RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(SEND_ERROR "expected ${header} to compile alone as C99, got errors")
  endif()
endforeach()
