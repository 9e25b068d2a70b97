#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "apps/program.h"
#include "apps/shown_commands.h"
#include "io/file.h"
#include "linnet/attention.h"

namespace linnet {
namespace {

TEST(Help, NamesAnExampleThatParses) {
  for (const Strings& command : all_commands()) {
    const std::string help = succeed(joined(command, {"--help"})).out;
    SCOPED_TRACE(help);
    const std::vector<ShownCommand> examples = examples_of_help(help);
    EXPECT_FALSE(examples.empty());
    for (const ShownCommand& example : examples) {
      EXPECT_EQ(example.command, command);
      // A last option that nobody knows: it is all that the parser finds wrong with the line.
      const Ended ended = run_linnet(joined(example.words, {"--no-such-option"}));
      EXPECT_EQ(ended.status, 2);
      EXPECT_THAT(ended.err, testing::HasSubstr("--no-such-option is not known here")) << example.text;
    }
  }
}

// A rank computes whole passes of an update: more ranks than passes are refused.
TEST(Pages, TrainingsOfSeveralRanksHaveAPassForEach) {
  const auto number_after = [](const std::string& line, const std::string& words, int otherwise) {
    const std::size_t at = line.find(words);
    return at == std::string::npos ? otherwise : std::stoi(line.substr(at + words.size()));
  };
  int shown = 0;
  for (const auto& page : std::filesystem::recursive_directory_iterator(LINNET_SOURCE_FOLDER "/docs")) {
    if (page.path().extension() != ".md") continue;
    for (const std::string& line : lines_of(read_file(page.path()))) {
      if (!line.starts_with("mpirun ") || line.find(" linnet train ") == std::string::npos ||
          line.find("--resume") != std::string::npos)
        continue;
      ++shown;
      constexpr int of_host_file = 2;  // at least
      EXPECT_LE(number_after(line, " -n ", of_host_file), number_after(line, "training.accumulate=", 1))
          << page.path() << ": " << line;
    }
  }
  EXPECT_GE(shown, 7);
}

/// The tables between comments that name them, "<!-- NAME: printed by …" to "<!-- end of NAME -->".
std::map<std::string, std::string> tables_of(const std::string& page) {
  std::map<std::string, std::string> tables;
  std::string name;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("<!-- end of ")) name.clear();
    if (!name.empty()) tables[name] += line + "\n";
    const std::size_t colon = line.find(": printed by ");
    if (line.starts_with("<!-- ") && colon != std::string::npos) name = line.substr(5, colon - 5);
  }
  return tables;
}

TEST(Families, PageHoldsTheTablesOfTheProgram) {
  const auto printed = tables_of(succeed({"families", "--markdown"}).out);
  EXPECT_EQ(printed.size(), 3u);
  EXPECT_EQ(tables_of(read_file(LINNET_SOURCE_FOLDER "/docs/families.md")), printed)
      << "scripts/families.sh writes them into the page";
}

TEST(Families, PageHasASectionForEach) {
  const std::string page = read_file(LINNET_SOURCE_FOLDER "/docs/families.md");
  for (const FamilyInfo& info : family_table())
    EXPECT_THAT(page, testing::HasSubstr("\n## " + info.name + "\n"));
}

}  // namespace
}  // namespace linnet
