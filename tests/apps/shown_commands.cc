#include "apps/shown_commands.h"

#include <algorithm>
#include <regex>

namespace linnet {
namespace {

using Kind = ShownCommand::Kind;

bool begins(const Strings& words, const Strings& command) {
  return words.size() >= command.size() && std::equal(command.begin(), command.end(), words.begin());
}

/// `text` begins with "linnet ".
ShownCommand shown(const std::string& text, bool is_inline) {
  ShownCommand result;
  static const std::regex word(R"re(("[^"]*"|[^\s"])+)re"), placeholder(R"([A-Z]{2,}(\.[a-z]+)?)");
  bool redirected = false, only_options = true;
  std::size_t end = text.size();
  for (std::sregex_iterator at(text.begin(), text.end(), word), none; at != none; ++at) {
    std::string found = at->str();
    if (found.starts_with('#')) {
      end = static_cast<std::size_t>(at->position());
      break;
    }
    if (std::regex_match(found, placeholder)) result.kind = Kind::grammar;
    std::erase(found, '"');
    if (redirected)
      result.into = found;
    else if (found != ">")
      result.words.push_back(found);
    redirected = found == ">";
  }
  result.words.erase(result.words.begin());
  result.text = text.substr(0, end);
  if (result.text.find_first_of("[|") != std::string::npos || result.text.find("…") != std::string::npos)
    result.kind = Kind::grammar;
  for (const Strings& command : all_commands()) {
    if (begins(result.words, command)) result.command = command;
    if (result.words.size() == 1 && begins(command, result.words)) result.command = result.words;
  }
  for (std::size_t i = result.command.size(); i < result.words.size(); ++i)
    only_options &= result.words[i].starts_with("--");
  if (is_inline && only_options) result.kind = Kind::mention;
  return result;
}

/// Where a command begins in a line of shell, "$linnet" being "linnet"; or nothing.
std::string command_in(const std::string& line) {
  const std::size_t at = line.find_first_not_of(' ');
  if (at == std::string::npos) return {};
  const std::string rest = line.substr(line[at] == '$' ? at + 1 : at);
  return rest.starts_with("linnet ") ? rest : std::string();
}

}  // namespace

const std::vector<Strings>& all_commands() {
  static const std::vector<Strings> commands = {{"train"},
                                                {"approximate"},
                                                {"generate"},
                                                {"evaluate"},
                                                {"attend"},
                                                {"inspect"},
                                                {"families"},
                                                {"data", "show"},
                                                {"data", "digits"},
                                                {"data", "copy"},
                                                {"data", "reverse"},
                                                {"data", "instruments"},
                                                {"data", "midi"},
                                                {"data", "tokenizer"},
                                                {"convert"},
                                                {"plot"},
                                                {"fill"},
                                                {"filter"},
                                                {"classify"},
                                                {"forecast"},
                                                {"score"},
                                                {"runs"},
                                                {"embed"},
                                                {"completions"},
                                                {"bench", "train"},
                                                {"bench", "attention"},
                                                {"bench", "generate"}};
  return commands;
}

std::vector<ShownCommand> commands_of_page(const std::string& page) {
  std::vector<ShownCommand> found;
  bool in_block = false;
  std::string paragraph;
  const auto end_paragraph = [&] {
    static const std::regex code("`([^`]+)`");
    for (std::sregex_iterator at(paragraph.begin(), paragraph.end(), code), none; at != none; ++at)
      if (const std::string text = command_in((*at)[1]); !text.empty()) found.push_back(shown(text, true));
    paragraph.clear();
  };
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("```")) {
      end_paragraph();
      in_block = !in_block;
    } else if (!in_block) {
      if (line.empty()) end_paragraph();
      paragraph += line + " ";
    } else if (const std::string text = command_in(line); !text.empty()) {
      found.push_back(shown(text, false));
    } else if (line.starts_with(' ') && !found.empty() && found.back().kind == Kind::grammar) {
      found.back() = shown(found.back().text + line, false);
    }
  }
  end_paragraph();
  return found;
}

std::vector<ShownCommand> commands_of_configuration(const std::string& toml) {
  std::vector<ShownCommand> found;
  for (const std::string& line : lines_of(toml))
    if (const std::size_t at = line.find("linnet "); line.starts_with('#') && at != std::string::npos)
      found.push_back(shown(line.substr(at), false));
  return found;
}

std::vector<ShownCommand> examples_of_help(const std::string& help) {
  std::vector<ShownCommand> found;
  for (const std::string& line : lines_of(help)) {
    const std::size_t at = line.find("linnet ");
    if (at == std::string::npos) continue;
    if (line.starts_with("Example") || line.find_first_not_of(' ') == at)
      found.push_back(shown(line.substr(at), false));
  }
  return found;
}

}  // namespace linnet
