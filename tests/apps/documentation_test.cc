#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "apps/program.h"
#include "io/file.h"
#include "linnet/attention.h"

namespace linnet {
namespace {

const std::vector<Strings> commands = {{"train"},
                                       {"approximate"},
                                       {"generate"},
                                       {"evaluate"},
                                       {"attend"},
                                       {"inspect"},
                                       {"families"},
                                       {"data", "digits"},
                                       {"data", "copy"},
                                       {"convert"},
                                       {"plot"},
                                       {"fill"},
                                       {"runs"},
                                       {"embed"},
                                       {"bench", "train"},
                                       {"bench", "attention"},
                                       {"bench", "generate"}};

/// The words of a line of shell: quotes, no more.
Strings words_of(const std::string& line) {
  Strings words;
  std::istringstream text(line);
  std::string word;
  while (text >> std::ws && text.peek() != EOF) {
    if (text.peek() == '"') {
      text.get();
      std::getline(text, word, '"');
    } else {
      text >> word;
    }
    words.push_back(word);
  }
  return words;
}

TEST(Help, NamesAnExampleThatParses) {
  for (const Strings& command : commands) {
    const std::string help = succeed(joined(command, {"--help"})).out;
    SCOPED_TRACE(help);
    int examples = 0;
    for (const std::string& line : lines_of(help)) {
      const std::size_t at = line.find("linnet ");
      if (at == std::string::npos || line.find_first_not_of(' ') == std::string::npos) continue;
      if (line.find("Example") == std::string::npos && line.find_first_not_of(' ') != at) continue;
      ++examples;
      Strings words = words_of(line.substr(at));
      words.erase(words.begin());
      ASSERT_GE(words.size(), command.size());
      EXPECT_EQ(Strings(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(command.size())), command);
      // A last option that nobody knows: it is all that the parser finds wrong with the line.
      words.push_back("--no-such-option");
      const Ended ended = run_linnet(words);
      EXPECT_EQ(ended.status, 2);
      EXPECT_THAT(ended.err, testing::HasSubstr("--no-such-option is not known here")) << line;
    }
    EXPECT_GE(examples, 1);
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
