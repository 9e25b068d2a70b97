#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <system_error>
#include <thread>

#include "base/fail.h"
#include "comm/mpi/start_ranks.h"
#include "command_line.h"
#include "commands.h"
#include "complaint.h"
#include "linnet/instruction_set.h"
#include "linnet/version.h"

namespace linnet {
namespace {

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
  } catch (const Complained& ended) {
    return ended.status;
  } catch (const CommandLineError& error) {
    // All ranks have got it. Launchers end all processes once one has failed: rank 0 speaks first.
    const Complaint complaint = complaint_of(error);
    if (launch().rank == 0)
      print_complaint(complaint);
    else
      std::this_thread::sleep_for(std::chrono::seconds(1));
    return complaint.status;
  } catch (const std::exception& error) {
    const Complaint complaint = complaint_of(error);
    print_complaint(complaint);
    return complaint.status;
  }
}

}  // namespace
}  // namespace linnet

int main(int argc, char** argv) { return linnet::run(argc, argv); }
