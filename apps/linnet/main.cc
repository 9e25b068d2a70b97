#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "base/names.h"
#include "commands.h"
#include "linnet/error.h"
#include "linnet/instruction_set.h"
#include "linnet/version.h"

namespace linnet {
namespace {

constexpr int failed = 1;
constexpr int usage = 2;

/// The command that was being parsed, for its name and the options that it knows.
const CLI::App& innermost(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  return chosen.empty() ? program : innermost(*chosen.front());
}

std::vector<std::string> child_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* child : shown_commands(command)) names.push_back(child->get_name());
  return names;
}

std::string known_near(const std::string& word, const CLI::App& command) {
  std::vector<std::string> known = child_names(command);
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const std::string name = word.substr(0, word.find('='));
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

std::string full_name(const CLI::App& command) {
  return command.get_parent() == nullptr ? command.get_name()
                                         : full_name(*command.get_parent()) + " " + command.get_name();
}

/// Unlike fmt::print it never throws, should standard error be full or closed.
int complain(const std::string& line, int status) {
  std::fputs((line + "\n").c_str(), stderr);
  return status;
}

int run(int argc, char** argv) {
  CLI::App program("Train transformers with linear-time attention, and generate in constant memory.",
                   "linnet");
  program.require_subcommand(1);
  program.set_version_flag("--version", std::string("linnet ") + version());
  add_train(program);
  add_generate(program);
  add_evaluate(program);
  add_fill(program);
  add_embed(program);
  add_attend(program);
  add_approximate(program);
  add_bench(program);
  add_inspect(program);
  add_convert(program);
  add_data(program);
  add_families(program);
  add_plot(program);
  add_completions(program);
  try {
    instruction_set();  // refuses a LINNET_ISA that cannot be obeyed
    program.parse(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      fail("output", "cannot write standard output: {}", std::generic_category().message(errno));
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return program.exit(error);
    const CLI::App& command = innermost(program);
    std::string message = error.what();
    const std::vector<std::string> unknown = command.remaining();
    const bool no_command = message.find("subcommand is required") != std::string::npos;
    if (!unknown.empty() && (no_command || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr))
      message = fmt::format("{} is not known here{}", unknown.front(), known_near(unknown.front(), command));
    else if (no_command)
      message = fmt::format("expected a command ({}), got none", fmt::join(child_names(command), ", "));
    return complain(fmt::format("{}: {} (see {} --help)", full_name(command), message, full_name(command)),
                    usage);
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
