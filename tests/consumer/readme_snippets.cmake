# Compiles the C++ and C of README against the installed library, with the line of README for pkg-config, and runs
# them. README, SOURCE (where models/ is), BINARY, CXX, CC, PREFIX.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${BINARY})
file(MAKE_DIRECTORY ${BINARY})
file(READ ${README} text)

# The blocks of a language, from line to line of three backquotes. Semicolons would make lists of them.
string(REPLACE ";" "<semicolon>" text "${text}")
string(REGEX MATCHALL "```cpp\n[^`]*```" snippets "${text}")
list(LENGTH snippets count)
if(NOT count EQUAL 2)
  message(FATAL_ERROR "expected two blocks of C++ in ${README}, got ${count}")
endif()
string(REGEX MATCHALL "```c\n[^`]*```" c_snippets "${text}")
list(LENGTH c_snippets count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "expected a block of C in ${README}, got ${count}")
endif()
string(REGEX MATCH "export PKG_CONFIG_PATH=[^`]*" shell "${text}")
if(NOT shell MATCHES "g\\+\\+ .* your_program.cc ")
  message(FATAL_ERROR "expected the lines for pkg-config in ${README}, got \"${shell}\"")
endif()
string(REPLACE "~/.local" "${PREFIX}" shell "${shell}")
string(REPLACE "$HOME/.local" "${PREFIX}" shell "${shell}")
string(REPLACE "g++ -std=c++20 your_program.cc" "${CC} your_program.c" c_shell "${shell}")
string(REPLACE "g++ " "${CXX} " shell "${shell}")

# What the second block takes from the program around it: config, options, examples, length and tokens.
set(around [[
  linnet::ModelConfig config<semicolon>
  config.layers = config.heads = 1<semicolon>
  config.width = config.feed_forward = 8<semicolon>
  config.length = 4<semicolon>
  config.vocabulary = 3<semicolon>
  linnet::TrainingOptions options<semicolon>
  options.steps = 3<semicolon>
  const std::int64_t examples = 2, length = 4<semicolon>
  const std::vector<std::int32_t> tokens = {0, 1, 2, 0, 1, 2, 0, 1}<semicolon>
]])
# A program of the lines of the snippet behind its line for the header, which is compiled and run.
function(run_snippet snippet file headers declarations shell)
  string(REGEX REPLACE "```(cpp\n|c\n)?" "" snippet "${snippet}")
  string(REGEX MATCH "#include[^\n]*\n" include "${snippet}")
  string(REPLACE "${include}" "" body "${snippet}")
  if(body MATCHES "trainer.step")
    set(body "${declarations}${body}")
  endif()
  string(REPLACE "<semicolon>" ";" program "${headers}${include}int main() {\n${body}}\n")
  file(WRITE ${BINARY}/${file} "${program}")
  file(WRITE ${BINARY}/build.sh "set -e\n${shell}")
  execute_process(COMMAND sh build.sh WORKING_DIRECTORY ${BINARY} COMMAND_ERROR_IS_FATAL ANY)
  file(CREATE_LINK ${SOURCE}/models ${BINARY}/models SYMBOLIC)
  execute_process(COMMAND ./a.out WORKING_DIRECTORY ${BINARY} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
foreach(snippet IN LISTS snippets)
  run_snippet("${snippet}" your_program.cc "#include <cstdint>\n#include <memory>\n#include <vector>\n" "${around}" "${shell}")
endforeach()
run_snippet("${c_snippets}" your_program.c "" "" "${c_shell}")
