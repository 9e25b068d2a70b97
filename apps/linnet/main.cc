#include <csignal>
#include <string>

#include "command_line.h"
#include "commands.h"
#include "linnet/instruction_set.h"
#include "linnet/version.h"
#include "ranks.h"
#include "report.h"

namespace linnet {
namespace {

void run(int argc, char** argv, Communicator& ranks) {
  instruction_set();  // refuses a LINNET_ISA that cannot be obeyed
  Program program("linnet", "Train transformers with linear-time attention, and generate in constant memory.",
                  version());
  Command command = program.command();
  add_train(command, ranks);
  add_generate(command, ranks);
  add_evaluate(command, ranks);
  add_classify(command);
  add_fill(command);
  add_filter(command);
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
  program.run(argc, argv, [&](const std::string& chosen) { check_ranks(ranks, chosen); });
  flush_output();
}

}  // namespace
}  // namespace linnet

int main(int argc, char** argv) {
  // A write beyond a limit on the size of files fails as it does on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  return linnet::run_on_ranks([&](linnet::Communicator& ranks) { linnet::run(argc, argv, ranks); });
}
