#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "checks.h"
#include "commands.h"
#include "config.h"
#include "linnet/attention.h"
#include "linnet/feature_map.h"
#include "linnet/similarity.h"

// Completions for bash, zsh and fish, written from the options that the commands define, so that nothing is
// listed twice.

namespace linnet {
namespace {

using Words = std::vector<std::string>;

/// An option or a positional argument, as a shell has to know it.
struct Argument {
  Words names;        ///< "--out"; empty for positional arguments
  std::string help;   ///< one line
  bool value = true;  ///< whether a value follows; otherwise it is a flag
  Words words;        ///< what the value can be; empty for files and numbers
  bool files = true;  ///< whether it may be the name of a file
};

/// A command with its parents' names, "bench attention"; empty for the program itself.
struct Command {
  std::string path;
  std::string help;
  std::vector<Argument> arguments;
  std::vector<const CLI::App*> children;
};

template <class Info>
Words names_of(std::initializer_list<std::span<const Info>> tables) {
  Words names;
  for (const std::span<const Info> table : tables)
    for (const Info& info : table) names.push_back(info.name);
  return names;
}

/// Words that the value of an option of this name is taken from, besides those of a check.
Words words_of_name(const std::string& name) {
  if (name == "--family" || name == "--compare" || name == "--attention")
    return names_of<FamilyInfo>({family_table()});
  if (name == "--feature-map")
    return names_of<FeatureMapInfo>({feature_map_table(), random_feature_map_table()});
  if (name == "--similarity") return names_of<SimilarityInfo>({similarity_table()});
  if (name == "--config") return shipped_configs();
  return {};
}

/// The words of `one_of`, which are the name of its check.
Words words_of_checks(CLI::Option& option) {
  Words words;
  try {
    for (int i = 0;; ++i) {
      const std::string& name = option.get_validator(i)->get_name();
      for (const std::string& word : CLI::detail::split(name, ' '))
        if (!word.empty()) words.push_back(word);
    }
  } catch (const CLI::OptionNotFound&) {
    return words;
  }
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Argument argument_of(CLI::Option& option) {
  Argument argument;
  argument.help = one_line(option.get_description());
  argument.value = option.get_items_expected_max() > 0;
  argument.words = words_of_checks(option);
  argument.files = argument.words.empty();
  for (const std::string& name : option.get_snames()) argument.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) {
    argument.names.push_back("--" + name);
    if (!argument.words.empty()) continue;
    argument.words = words_of_name("--" + name);
    argument.files = argument.words.empty() || name == "config";
  }
  return argument;
}

std::string path_of(const CLI::App& command) {
  if (command.get_parent() == nullptr) return "";
  const std::string above = path_of(*command.get_parent());
  return above.empty() ? command.get_name() : above + " " + command.get_name();
}

void collect(std::vector<Command>& commands, CLI::App& app) {
  Command command{path_of(app), one_line(app.get_description()), {}, shown_commands(app)};
  for (CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) command.arguments.push_back(argument_of(*option));
  commands.push_back(std::move(command));
  for (CLI::App* child : app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); }))
    collect(commands, *child);
}

/// The text between single quotes of a shell. fish wants a backslash before each quote, the others close the
/// quotes for it.
std::string quoted(const std::string& text, const char* quote = "'\\''") {
  std::string result = "'";
  for (const char letter : text) {
    if (letter == '\'')
      result += quote;
    else
      result += letter;
  }
  return result + "'";
}

Words option_names(const Command& command) {
  Words names;
  for (const Argument& argument : command.arguments)
    names.insert(names.end(), argument.names.begin(), argument.names.end());
  return names;
}

Words child_words(const Command& command) {
  Words names;
  for (const CLI::App* child : command.children) names.push_back(child->get_name());
  return names;
}

/// Words of the command's positional arguments.
Words positional_words(const Command& command) {
  Words words = child_words(command);
  for (const Argument& argument : command.arguments)
    if (argument.names.empty() || std::ranges::find(argument.names, "--config") != argument.names.end())
      words.insert(words.end(), argument.words.begin(), argument.words.end());
  return words;
}

/// The patterns of `case "$command $word"` that name a command below another.
std::string command_patterns(const std::vector<Command>& commands) {
  Words patterns;
  for (const Command& command : commands) {
    if (command.path.empty()) continue;
    const bool top = command.path.find(' ') == std::string::npos;
    patterns.push_back(fmt::format("\"{}{}\"", top ? " " : "", command.path));
  }
  return fmt::format("{}", fmt::join(patterns, "|"));
}

/// "train:--out|train:-o" for `case "$command:$previous"`.
std::string value_pattern(const Command& command, const Argument& argument) {
  Words patterns;
  for (const std::string& name : argument.names)
    patterns.push_back(fmt::format("\"{}:{}\"", command.path, name));
  return fmt::format("{}", fmt::join(patterns, "|"));
}

std::string bash_script(const std::vector<Command>& commands) {
  std::string script = fmt::format(R"(# bash completion of linnet, printed by "linnet completions bash".
_linnet() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command= words= files=yes i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${{COMP_WORDS[i]}}" in
      {}) command="${{command:+$command }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$command:$previous" in
)",
                                   command_patterns(commands));
  for (const Command& command : commands) {
    for (const Argument& argument : command.arguments) {
      if (argument.names.empty() || !argument.value) continue;
      script +=
          fmt::format("    {}) words={} files={} ;;\n", value_pattern(command, argument),
                      quoted(fmt::format("{}", fmt::join(argument.words, " "))), argument.files ? "yes" : "");
    }
  }
  script += R"(    *)
      case "$command" in
)";
  for (const Command& command : commands) {
    const Words positional = positional_words(command);
    script += fmt::format("        \"{}\") words={}; [[ $current == -* ]] && words={}{} ;;\n", command.path,
                          quoted(fmt::format("{}", fmt::join(positional, " "))),
                          quoted(fmt::format("{}", fmt::join(option_names(command), " "))),
                          command.children.empty() ? "" : "; files=");
  }
  return script + R"(      esac
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if [[ -n $files && $current != -* ]]; then compopt -o default 2>/dev/null; fi
}
complete -F _linnet linnet
)";
}

/// "name:help" of `_describe`, in which colons of the name separate.
std::string described(const std::string& name, const std::string& help) { return quoted(name + ":" + help); }

std::string zsh_script(const std::vector<Command>& commands) {
  std::string script = fmt::format(R"(#compdef linnet
# zsh completion of linnet, printed by "linnet completions zsh".
_linnet() {{
  local command= files= word
  local -a items values
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$command $word" in
      {}) command="${{command:+$command }}$word" ;;
    esac
  done
  case "$command:${{words[CURRENT-1]}}" in
)",
                                   command_patterns(commands));
  for (const Command& command : commands) {
    for (const Argument& argument : command.arguments) {
      if (argument.names.empty() || !argument.value) continue;
      Words words;
      for (const std::string& word : argument.words) words.push_back(quoted(word));
      script += fmt::format("    {})", value_pattern(command, argument));
      if (!words.empty()) script += fmt::format(" compadd -- {};", fmt::join(words, " "));
      script += argument.files ? " _files; return ;;\n" : " return ;;\n";
    }
  }
  script += R"(  esac
  case "$command" in
)";
  for (const Command& command : commands) {
    Words items, values;
    for (const Argument& argument : command.arguments)
      for (const std::string& name : argument.names) items.push_back(described(name, argument.help));
    for (const CLI::App* child : command.children)
      values.push_back(described(child->get_name(), one_line(child->get_description())));
    if (command.children.empty())
      for (const std::string& word : positional_words(command)) values.push_back(quoted(word));
    script += fmt::format("    \"{}\")\n      items=({})\n      values=({})\n      files={}\n      ;;\n",
                          command.path, fmt::join(items, " "), fmt::join(values, " "),
                          command.children.empty() ? "yes" : "");
  }
  return script + R"(  esac
  if [[ $PREFIX == -* ]]; then
    _describe option items
  else
    (( $#values )) && _describe value values
    [[ -z $files ]] || _files
  fi
}
if [[ $funcstack[1] == _linnet ]]; then _linnet "$@"; else compdef _linnet linnet; fi
)";
}

std::string fish_quoted(const std::string& text) { return quoted(text, "\\'"); }

std::string fish_script(const std::vector<Command>& commands) {
  Words paths;
  for (const Command& command : commands)
    if (!command.path.empty()) paths.push_back(fish_quoted(command.path));
  std::string script = fmt::format(R"(# fish completion of linnet, printed by "linnet completions fish".
function __linnet_at --description 'Whether the command line has come to this command'
  set -l command ''
  for word in (commandline -opc)[2..-1]
    set -l next (string trim -- "$command $word")
    if contains -- "$next" {}
      set command "$next"
    end
  end
  test "$command" = "$argv[1]"
end
)",
                                   fmt::join(paths, " "));
  for (const Command& command : commands) {
    const std::string line = fmt::format("complete -c linnet -n \"__linnet_at '{}'\"", command.path);
    for (const CLI::App* child : command.children)
      script += fmt::format("{} -f -a {} -d {}\n", line, fish_quoted(child->get_name()),
                            fish_quoted(one_line(child->get_description())));
    if (command.children.empty()) {
      const Words positional = positional_words(command);
      if (!positional.empty())
        script += fmt::format("{} -a {}\n", line, fish_quoted(fmt::format("{}", fmt::join(positional, " "))));
    }
    for (const Argument& argument : command.arguments) {
      if (argument.names.empty()) continue;
      script += line;
      for (const std::string& name : argument.names)
        script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (argument.value) script += argument.files ? " -r" : " -x";
      if (!argument.words.empty())
        script += fmt::format(" -a {}", fish_quoted(fmt::format("{}", fmt::join(argument.words, " "))));
      script += fmt::format(" -d {}\n", fish_quoted(argument.help));
    }
  }
  return script;
}

}  // namespace

std::vector<const CLI::App*> shown_commands(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App* child) { return !child->get_group().empty(); });
}

void add_completions(CLI::App& program) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = program.add_subcommand("completions", "Print the completions of a shell");
  command->group("");
  command->footer("Example: linnet completions bash > ~/.local/share/bash-completion/completions/linnet");
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
  command->callback([shell, &program] {
    std::vector<Command> commands;
    collect(commands, program);
    fmt::print("{}", *shell == "bash"  ? bash_script(commands)
                     : *shell == "zsh" ? zsh_script(commands)
                                       : fish_script(commands));
  });
}

}  // namespace linnet
