#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace linnet {

/// Checks the text of a value on the command line.
struct Check {
  /// The sentence that says what was expected and what was given, or nothing for a text that fits.
  std::function<std::string(const std::string& text)> problem;
  std::vector<std::string> words;  ///< all texts that fit, where they can be listed
};

/// An option or a positional argument of a command. It lives as long as the program, and copies stand for the
/// same one.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  /// Refuses the values that do not fit; of a list each value.
  Option& check(const Check& check);
  /// Has the shells offer these words, beside which others fit.
  Option& offers(std::vector<std::string> words);
  Option& required();
  /// Takes an empty text too. Others are refused, as what a variable of a shell stands for that is not set.
  Option& may_be_empty();
  /// `--help` prints the value that the variable has now.
  Option& capture_default_str();
  /// A list may be one text with this letter between its values.
  Option& delimiter(char letter);
  /// Whether a list takes the words behind its first one.
  Option& allow_extra_args(bool allow);
  Option& excludes(const Option& other);
  Option& needs(const Option& other);

  /// How many times the user gave it.
  std::size_t count() const;
  /// The text that the user gave, of a list with commas; empty where there is none.
  std::string text() const;
  /// Fails as a required one does, where the user did not give it.
  void require_given() const;

  /// The first of the long names, or that of the positional argument.
  std::string name() const;
  /// "-h", "--help"; none for positional arguments.
  std::vector<std::string> names() const;
  std::string description() const;
  /// Whether a value follows; otherwise it is a flag.
  bool takes_value() const;
  /// Whether the value is a number, or a list of numbers.
  bool takes_number() const;
  /// Those of its checks, and those that it offers.
  std::vector<std::string> words() const;

 private:
  CLI::Option* option_;
};

/// A command of the program, or the program itself. It lives as long as the program, and copies stand for the
/// same one.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command add_subcommand(const std::string& name, const std::string& description);
  /// `names` are separated by commas; one without "--" is positional. `value` is a text, a double, an int, a
  /// std::int64_t, a std::uint64_t, or a vector of these, and lives as long as the program.
  template <class T>
  Option add_option(const std::string& names, T& value, const std::string& description);
  /// "--name,!--opposite".
  Option add_flag(const std::string& names, bool& value, const std::string& description);
  void footer(const std::string& text);
  /// What the command does. It runs while the line is parsed.
  void callback(std::function<void()> run);
  /// One of the commands below has to be given.
  void require_subcommand();
  /// Leaves the command out of `--help` and of `subcommands`.
  void hide();

  std::string name() const;
  /// With the names of the commands above it, "bench attention"; empty for the program.
  std::string path() const;
  std::string description() const;
  /// Less the hidden ones.
  std::vector<Command> subcommands() const;
  std::vector<Option> options() const;

 private:
  CLI::App* app_;
};

/// What is wrong with a command line: one sentence that begins with the command.
class CommandLineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The program's commands and options. The only part of the program that knows CLI11, whose headers take long
/// to compile.
class Program {
 public:
  Program(const std::string& name, const std::string& description, const std::string& version);
  ~Program();

  /// The program itself, to which commands are added.
  Command command() const { return Command(app_.get()); }

  /// Runs the command of this line, or prints the help or the version that it asks for. Calls `before` with
  /// the name of the command, the first word of its path, before it runs. Throws CommandLineError for a line
  /// that cannot be parsed, and what `before` and the command throw.
  void run(int argc, char** argv, const std::function<void(const std::string& command)>& before);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace linnet
