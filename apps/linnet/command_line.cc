#include "command_line.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/names.h"

namespace linnet {
namespace {

bool shown(const CLI::App* app) { return !app->get_group().empty(); }

/// The command that was being parsed, for its name and the options that it knows.
CLI::App& innermost(CLI::App& program) {
  const auto chosen = program.get_subcommands();
  return chosen.empty() ? program : innermost(*chosen.front());
}

std::vector<std::string> child_names(const Command& command) {
  std::vector<std::string> names;
  for (const Command& child : command.subcommands()) names.push_back(child.name());
  return names;
}

std::string known_near(const std::string& word, CLI::App& app) {
  std::vector<std::string> known = child_names(Command(&app));
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const std::string name = word.substr(0, word.find('='));
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

/// CLI11's sentence, or a better one where it would not name what was found or expected.
std::string sentence(const CLI::ParseError& error, CLI::App& app) {
  std::string message = error.what();
  const std::vector<std::string> unknown = app.remaining();
  const bool no_command = message.find("subcommand is required") != std::string::npos;
  if (!unknown.empty() && (no_command || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr))
    return fmt::format("{} is not known here{}", unknown.front(), known_near(unknown.front(), app));
  if (no_command)
    return fmt::format("expected a command ({}), got none", fmt::join(child_names(Command(&app)), ", "));
  return message;
}

}  // namespace

// The name of a CLI11 validator holds the words.
Option& Option::check(const Check& check) {
  option_->check(CLI::Validator([problem = check.problem](const std::string& text) { return problem(text); },
                                "", fmt::format("{}", fmt::join(check.words, " "))));
  return *this;
}

Option& Option::offers(std::vector<std::string> words) {
  return check({[](const std::string&) { return std::string(); }, std::move(words)});
}

// The first validator of a text, whose name is empty, is the one that refuses empty ones.
Option& Option::may_be_empty() {
  option_->get_validator("")->active(false);
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::capture_default_str() {
  option_->capture_default_str();
  return *this;
}

Option& Option::delimiter(char letter) {
  option_->delimiter(letter);
  return *this;
}

Option& Option::allow_extra_args(bool allow) {
  option_->allow_extra_args(allow);
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Option& Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

std::size_t Option::count() const { return option_->count(); }

std::string Option::text() const { return fmt::format("{}", fmt::join(option_->results(), ",")); }

void Option::require_given() const {
  if (option_->empty()) throw CLI::RequiredError(option_->get_name(false, true));
}

std::string Option::name() const { return option_->get_name(); }

std::vector<std::string> Option::names() const {
  std::vector<std::string> names;
  for (const std::string& name : option_->get_snames()) names.push_back("-" + name);
  for (const std::string& name : option_->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string Option::description() const { return option_->get_description(); }

bool Option::takes_value() const { return option_->get_items_expected_max() > 0; }

bool Option::takes_number() const { return takes_value() && !option_->get_type_name().starts_with("TEXT"); }

std::vector<std::string> Option::words() const {
  std::vector<std::string> words;
  try {
    for (int i = 0;; ++i)
      for (std::string& word : CLI::detail::split(option_->get_validator(i)->get_name(), ' '))
        if (!word.empty()) words.push_back(std::move(word));
  } catch (const CLI::OptionNotFound&) {
    return words;
  }
}

Command Command::add_subcommand(const std::string& name, const std::string& description) {
  return Command(app_->add_subcommand(name, description));
}

template <class T>
Option Command::add_option(const std::string& names, T& value, const std::string& description) {
  CLI::Option* option = app_->add_option(names, value, description);
  if (std::is_same_v<T, std::string>)
    option->check(CLI::Validator(
        [](const std::string& text) { return text.empty() ? "expected a value, got an empty one" : ""; },
        ""));
  return Option(option);
}

template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&, int&, const std::string&);
template Option Command::add_option(const std::string&, std::int64_t&, const std::string&);
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<int>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::int64_t>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<double>&, const std::string&);

Option Command::add_flag(const std::string& names, bool& value, const std::string& description) {
  return Option(app_->add_flag(names, value, description));
}

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::callback(std::function<void()> run) { app_->callback(std::move(run)); }

void Command::require_subcommand() { app_->require_subcommand(1); }

void Command::hide() { app_->group(""); }

std::string Command::name() const { return app_->get_name(); }

std::string Command::path() const {
  if (app_->get_parent() == nullptr) return "";
  const std::string above = Command(app_->get_parent()).path();
  return above.empty() ? name() : above + " " + name();
}

std::string Command::description() const { return app_->get_description(); }

std::vector<Command> Command::subcommands() const {
  std::vector<Command> commands;
  for (CLI::App* app : app_->get_subcommands(shown)) commands.emplace_back(app);
  return commands;
}

std::vector<Option> Command::options() const {
  std::vector<Option> options;
  for (CLI::Option* option : app_->get_options())
    if (!option->get_group().empty()) options.emplace_back(option);
  return options;
}

Program::Program(const std::string& name, const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->require_subcommand(1);
  app_->set_version_flag("--version", name + " " + version);
}

Program::~Program() = default;

void Program::run(int argc, char** argv, const std::function<void(const std::string& command)>& before) {
  app_->parse_complete_callback([&] { before(app_->get_subcommands().front()->get_name()); });
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app_->exit(error);
      return;
    }
    CLI::App& app = innermost(*app_);
    throw CommandLineError(
        fmt::format("{}: {} (see {} --help)", full_name(app), sentence(error, app), full_name(app)));
  }
}

}  // namespace linnet
