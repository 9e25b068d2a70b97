// The completions that the program prints: nothing of --help is missing, and the shells take them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "apps/program.h"
#include "io/file.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> shells = {"bash", "zsh", "fish"};

/// The commands below one, and its long options, as its --help shows them.
struct Shown {
  Strings commands;
  std::set<std::string> options;
};

Shown shown_by_help(const Strings& command) {
  static const std::regex option("--[a-z][a-z0-9-]*");
  Shown shown;
  std::string section;
  for (const std::string& line : lines_of(succeed(joined(command, {"--help"})).out)) {
    if (line.ends_with(":") && !line.starts_with(" ")) section = line;
    if (line.starts_with("Example")) break;
    if (section == "Options:" && line.starts_with("  -")) {
      const std::string names = line.substr(0, line.find("  ", 3));
      for (std::sregex_iterator at(names.begin(), names.end(), option), end; at != end; ++at)
        shown.options.insert(at->str());
    }
    if (section == "Subcommands:" && line.starts_with("  ") && line[2] != ' ')
      shown.commands.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return shown;
}

std::string script_of(const std::string& shell) { return succeed({"completions", shell}).out; }

/// What a program prints, and whether it ended well.
std::pair<std::string, bool> run(const std::string& line) {
  std::FILE* pipe = popen(line.c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe))
    text.append(buffer.data(), count);
  return {text, pclose(pipe) == 0};
}

bool has_program(const std::string& name) { return run("command -v " + name).second; }

class Completions : public testing::Test {
 protected:
  Completions() : folder_(fs::path(testing::TempDir()) / ("linnet-completions-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Completions() override { fs::remove_all(folder_); }

  std::string file_of(const std::string& shell) const {
    const fs::path path = folder_ / ("linnet." + shell);
    write_file_atomically(path, script_of(shell));
    return path.string();
  }

  /// What bash would offer for the last word of a line.
  Strings offered_by_bash(const std::string& script, const std::string& line) const {
    const auto [text, well] = run("bash -c 'source " + script + "; COMP_WORDS=(" + line +
                                  "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _linnet; printf \"%s\\n\" "
                                  "\"${COMPREPLY[@]}\"' 2>&1");
    EXPECT_TRUE(well) << text;
    return lines_of(text);
  }

  fs::path folder_;
};

TEST_F(Completions, HoldAllCommandsAndOptionsOfHelp) {
  std::vector<Strings> commands = {{}};
  std::map<std::string, std::string> scripts;
  for (const std::string& shell : shells) scripts[shell] = script_of(shell);
  std::size_t options = 0;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const Strings command = commands[i];
    const Shown shown = shown_by_help(command);
    SCOPED_TRACE(testing::PrintToString(command));
    EXPECT_TRUE(shown.options.contains("--help"));
    options += shown.options.size();
    for (const std::string& child : shown.commands) {
      commands.push_back(joined(command, {child}));
      for (const auto& [shell, script] : scripts) EXPECT_THAT(script, testing::HasSubstr(child)) << shell;
    }
    for (const std::string& option : shown.options) {
      EXPECT_THAT(scripts["bash"], testing::HasSubstr(option));
      EXPECT_THAT(scripts["zsh"], testing::HasSubstr("'" + option + ":"));
      EXPECT_THAT(scripts["fish"], testing::HasSubstr(" -l " + option.substr(2) + " "));
    }
  }
  EXPECT_GT(commands.size(), 14u);
  EXPECT_GT(options, 100u);
}

TEST_F(Completions, BashOffersWhatFits) {
  using testing::Contains;
  using testing::ElementsAre;
  using testing::IsSupersetOf;
  const std::string script = file_of("bash");
  EXPECT_THAT(offered_by_bash(script, "linnet ge"), ElementsAre("generate"));
  EXPECT_THAT(offered_by_bash(script, "linnet bench \"\""),
              testing::UnorderedElementsAre("train", "attention", "generate"));
  EXPECT_THAT(offered_by_bash(script, "linnet generate runs/x --temp"), ElementsAre("--temperature"));
  EXPECT_THAT(offered_by_bash(script, "linnet bench generate --real"), ElementsAre("--real-time"));
  EXPECT_THAT(offered_by_bash(script, "linnet train --config paper-m"), ElementsAre("paper-mnist"));
  EXPECT_THAT(offered_by_bash(script, "linnet train paper-m"), ElementsAre("paper-mnist"));
  EXPECT_THAT(offered_by_bash(script, "linnet attend x --family \"\""),
              IsSupersetOf({"linear", "softmax", "lsh"}));
  EXPECT_THAT(offered_by_bash(script, "linnet attend x --normalise \"\""), ElementsAre("sum", "none"));
  EXPECT_THAT(offered_by_bash(script, "linnet evaluate x --attention \"\""),
              IsSupersetOf({"linear", "softmax", "elu", "favor"}));
  EXPECT_THAT(offered_by_bash(script, "linnet bench generate --family conf"), ElementsAre("configured"));
  for (const char* command : {"train", "attention"})
    EXPECT_THAT(offered_by_bash(script, std::string("linnet bench ") + command + " --family al"),
                ElementsAre("all"));
  EXPECT_THAT(offered_by_bash(script, "linnet inspect paper-m"), ElementsAre("paper-mnist"));
  for (const char* list :
       {"bench generate --weights bf", "bench train --precision bf", "bench attention --dtype bf"})
    EXPECT_THAT(offered_by_bash(script, std::string("linnet ") + list), ElementsAre("bf16"));
  EXPECT_THAT(offered_by_bash(script, "linnet bench attention --pass st"), ElementsAre("step"));
  EXPECT_THAT(offered_by_bash(script, "linnet bench attention --mask caus"), ElementsAre("causal"));
  EXPECT_THAT(offered_by_bash(script, "linnet approximate --directions or"), ElementsAre("orthogonal"));
  // A number is no file.
  EXPECT_THAT(script_of("fish"), testing::HasSubstr(" -l steps -x "));
  EXPECT_THAT(offered_by_bash(script, "linnet completions \"\""), testing::Not(Contains("bash")))
      << "the command is hidden";
}

TEST_F(Completions, TheShellsReadThem) {
  const std::map<std::string, std::string> checks = {
      {"bash", "bash -n "}, {"zsh", "zsh -n "}, {"fish", "fish --no-execute "}};
  for (const auto& [shell, check] : checks) {
    if (!has_program(shell)) continue;
    const auto [text, well] = run(check + file_of(shell) + " 2>&1");
    EXPECT_TRUE(well) << shell << ": " << text;
  }
}

TEST_F(Completions, AnotherShellIsRefused) {
  const Ended ended = run_linnet({"completions", "tcsh"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, testing::HasSubstr("expected bash or zsh or fish, got tcsh"));
}

}  // namespace
}  // namespace linnet
