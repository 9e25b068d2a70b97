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

/// A command as a shell has to know it.
struct Entry {
  std::string path;  ///< "bench attention"; empty for the program itself
  std::string help;
  std::vector<Argument> arguments;
  std::vector<Command> children;
};

template <class Info>
Words names_of(std::initializer_list<std::span<const Info>> tables) {
  Words names;
  for (const std::span<const Info> table : tables)
    for (const Info& info : table) names.push_back(info.name);
  return names;
}

Words joined(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// Words that the value of an option of this name is taken from, besides those of a check.
Words words_of_name(const std::string& name) {
  Words families = names_of<FamilyInfo>({family_table()}),
        maps = names_of<FeatureMapInfo>({feature_map_table(), random_feature_map_table()});
  if (name == "--family" || name == "--compare") return families;
  if (name == "--feature-map") return maps;
  if (name == "--attention") return joined(families, maps);
  if (name == "--similarity") return names_of<SimilarityInfo>({similarity_table()});
  if (name == "--config") return shipped_configs();
  return {};
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Argument argument_of(const Option& option) {
  Argument argument;
  argument.names = option.names();
  argument.help = one_line(option.description());
  argument.value = option.takes_value();
  argument.words = option.words();
  bool configuration = false;
  for (const std::string& name : argument.names) {
    argument.words = joined(argument.words, words_of_name(name));
    configuration = configuration || name == "--config";
  }
  argument.files = configuration || (argument.words.empty() && !option.takes_number());
  return argument;
}

void collect(std::vector<Entry>& entries, const Command& command) {
  Entry entry{command.path(), one_line(command.description()), {}, command.subcommands()};
  for (const Option& option : command.options()) entry.arguments.push_back(argument_of(option));
  for (Argument& argument : entry.arguments)
    if (entry.path == "inspect" && argument.names.empty()) argument.words = shipped_configs();
  entries.push_back(std::move(entry));
  for (const Command& child : command.subcommands()) collect(entries, child);
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

Words option_names(const Entry& entry) {
  Words names;
  for (const Argument& argument : entry.arguments)
    names.insert(names.end(), argument.names.begin(), argument.names.end());
  return names;
}

Words child_words(const Entry& entry) {
  Words names;
  for (const Command& child : entry.children) names.push_back(child.name());
  return names;
}

/// Words of the command's positional arguments.
Words positional_words(const Entry& entry) {
  Words words = child_words(entry);
  for (const Argument& argument : entry.arguments)
    if (argument.names.empty() || (entry.path == "train" && argument.names.front() == "--config"))
      words = joined(words, argument.words);
  return words;
}

/// The patterns of `case "$command $word"` that name a command below another.
std::string command_patterns(const std::vector<Entry>& entries) {
  Words patterns;
  for (const Entry& entry : entries) {
    if (entry.path.empty()) continue;
    const bool top = entry.path.find(' ') == std::string::npos;
    patterns.push_back(fmt::format("\"{}{}\"", top ? " " : "", entry.path));
  }
  return fmt::format("{}", fmt::join(patterns, "|"));
}

/// "train:--out|train:-o" for `case "$command:$previous"`.
std::string value_pattern(const Entry& entry, const Argument& argument) {
  Words patterns;
  for (const std::string& name : argument.names)
    patterns.push_back(fmt::format("\"{}:{}\"", entry.path, name));
  return fmt::format("{}", fmt::join(patterns, "|"));
}

std::string bash_script(const std::vector<Entry>& entries) {
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
                                   command_patterns(entries));
  for (const Entry& entry : entries) {
    for (const Argument& argument : entry.arguments) {
      if (argument.names.empty() || !argument.value) continue;
      script +=
          fmt::format("    {}) words={} files={} ;;\n", value_pattern(entry, argument),
                      quoted(fmt::format("{}", fmt::join(argument.words, " "))), argument.files ? "yes" : "");
    }
  }
  script += R"(    *)
      case "$command" in
)";
  for (const Entry& entry : entries) {
    const Words positional = positional_words(entry);
    script += fmt::format("        \"{}\") words={}; [[ $current == -* ]] && words={}{} ;;\n", entry.path,
                          quoted(fmt::format("{}", fmt::join(positional, " "))),
                          quoted(fmt::format("{}", fmt::join(option_names(entry), " "))),
                          entry.children.empty() ? "" : "; files=");
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

std::string zsh_script(const std::vector<Entry>& entries) {
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
                                   command_patterns(entries));
  for (const Entry& entry : entries) {
    for (const Argument& argument : entry.arguments) {
      if (argument.names.empty() || !argument.value) continue;
      Words words;
      for (const std::string& word : argument.words) words.push_back(quoted(word));
      script += fmt::format("    {})", value_pattern(entry, argument));
      if (!words.empty()) script += fmt::format(" compadd -- {};", fmt::join(words, " "));
      script += argument.files ? " _files; return ;;\n" : " return ;;\n";
    }
  }
  script += R"(  esac
  case "$command" in
)";
  for (const Entry& entry : entries) {
    Words items, values;
    for (const Argument& argument : entry.arguments)
      for (const std::string& name : argument.names) items.push_back(described(name, argument.help));
    for (const Command& child : entry.children)
      values.push_back(described(child.name(), one_line(child.description())));
    if (entry.children.empty())
      for (const std::string& word : positional_words(entry)) values.push_back(quoted(word));
    script += fmt::format("    \"{}\")\n      items=({})\n      values=({})\n      files={}\n      ;;\n",
                          entry.path, fmt::join(items, " "), fmt::join(values, " "),
                          entry.children.empty() ? "yes" : "");
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

std::string fish_script(const std::vector<Entry>& entries) {
  Words paths;
  for (const Entry& entry : entries)
    if (!entry.path.empty()) paths.push_back(fish_quoted(entry.path));
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
  for (const Entry& entry : entries) {
    const std::string line = fmt::format("complete -c linnet -n \"__linnet_at '{}'\"", entry.path);
    for (const Command& child : entry.children)
      script += fmt::format("{} -f -a {} -d {}\n", line, fish_quoted(child.name()),
                            fish_quoted(one_line(child.description())));
    if (entry.children.empty()) {
      const Words positional = positional_words(entry);
      if (!positional.empty())
        script += fmt::format("{} -a {}\n", line, fish_quoted(fmt::format("{}", fmt::join(positional, " "))));
    }
    for (const Argument& argument : entry.arguments) {
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

void add_completions(Command& program) {
  auto shell = std::make_shared<std::string>();
  Command command = program.add_subcommand("completions", "Print the completions of a shell");
  command.hide();
  command.footer("Example: linnet completions bash > ~/.local/share/bash-completion/completions/linnet");
  command.add_option("shell", *shell, "bash, zsh or fish").required().check(one_of({"bash", "zsh", "fish"}));
  command.callback([shell, program] {
    std::vector<Entry> entries;
    collect(entries, program);
    fmt::print("{}", *shell == "bash"  ? bash_script(entries)
                     : *shell == "zsh" ? zsh_script(entries)
                                       : fish_script(entries));
  });
}

}  // namespace linnet
