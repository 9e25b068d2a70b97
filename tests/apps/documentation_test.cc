#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
