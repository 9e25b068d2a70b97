#pragma once

#include <string>
#include <vector>

#include "apps/program.h"

namespace linnet {

/// All commands of the program.
const std::vector<Strings>& all_commands();

/// A line of shell with a command of `linnet`, as documents show it.
struct ShownCommand {
  enum class Kind {
    whole,    ///< to be run as it stands
    grammar,  ///< has a placeholder in capitals (RUN), or one of [ | …
    mention,  ///< inline code with the name of a command and options without values
  };
  Kind kind = Kind::whole;
  std::string text;  ///< from "linnet " on, without the comment at its end
  Strings words;     ///< behind "linnet", without quotes and redirection
  std::string into;  ///< the file that `> FILE` names, or empty
  Strings command;   ///< the one of all_commands() that the words begin with, or its first word alone
};

/// In the order in which they are shown: lines of code blocks, and inline code. A page is Markdown.
std::vector<ShownCommand> commands_of_page(const std::string& page);

/// Those of the comments of a configuration: from "linnet " to the end of the line.
std::vector<ShownCommand> commands_of_configuration(const std::string& toml);

/// The examples at the end of what --help prints.
std::vector<ShownCommand> examples_of_help(const std::string& help);

}  // namespace linnet
