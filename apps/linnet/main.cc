#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "base/fail.h"
#include "command_line.h"
#include "commands.h"
#include "linnet/error.h"
#include "linnet/instruction_set.h"
#include "linnet/version.h"

namespace linnet {
namespace {

constexpr int failed = 1;
constexpr int usage = 2;

/// Unlike fmt::print it never throws, should standard error be full or closed.
int complain(const std::string& line, int status) {
  std::fputs((line + "\n").c_str(), stderr);
  return status;
}

int run(int argc, char** argv) {
  Program program("linnet", "Train transformers with linear-time attention, and generate in constant memory.",
                  version());
  Command command = program.command();
  add_train(command);
  add_generate(command);
  add_evaluate(command);
  add_classify(command);
  add_fill(command);
  add_forecast(command);
  add_score(command);
  add_embed(command);
  add_attend(command);
  add_approximate(command);
  add_bench(command);
  add_inspect(command);
  add_convert(command);
  add_data(command);
  add_families(command);
  add_plot(command);
  add_runs(command);
  add_completions(command);
  try {
    instruction_set();  // refuses a LINNET_ISA that cannot be obeyed
    program.run(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      fail("output", "cannot write standard output: {}", std::generic_category().message(errno));
    return 0;
  } catch (const CommandLineError& error) {
    return complain(error.what(), usage);
  } catch (const UsageError& error) {
    return complain(fmt::format("linnet: {}", error.what()), usage);
  } catch (const std::bad_alloc&) {
    return complain("linnet: [memory] expected more memory than this machine has free", failed);
  } catch (const std::exception& error) {
    return complain(fmt::format("linnet: {}", error.what()), failed);
  }
}

}  // namespace
}  // namespace linnet

int main(int argc, char** argv) { return linnet::run(argc, argv); }
