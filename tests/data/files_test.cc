#include "data/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  // The names of the files, without the folder.
  std::vector<std::string> names(const std::string& value) {
    std::vector<std::string> result;
    for (const auto& path : files_named("data.path", value, "text")) {
      EXPECT_EQ(path.parent_path(), folder.path());
      result.push_back(path.filename().string());
    }
    return result;
  }
  std::string in_folder(const char* name) { return (folder / name).string(); }

  TemporaryFolder folder;
};

TEST_F(Files, PatternsMatchAsInAShellAndAreSorted) {
  for (const char* name :
       {"b2.txt", "a10.txt", "a2.txt", "a.txt", ".hidden.txt", "a2.bin", "c[1].txt", "c1.txt"})
    folder.file(name, "x");
  std::filesystem::create_directory(folder / "ab.txt");
  EXPECT_THAT(names(in_folder("a*.txt")), ElementsAre("a.txt", "a10.txt", "a2.txt"));
  EXPECT_THAT(names(in_folder("?2.*")), ElementsAre("a2.bin", "a2.txt", "b2.txt"));
  EXPECT_THAT(names(in_folder("*.bin") + ", " + in_folder("a.txt")), ElementsAre("a2.bin", "a.txt"));
  EXPECT_THAT(names(in_folder("a.txt") + "," + in_folder("a*.txt")),
              ElementsAre("a.txt", "a10.txt", "a2.txt"));
  EXPECT_THAT(names(in_folder("c[1]*")), ElementsAre("c[1].txt"));
}

TEST_F(Files, NamesThatExistAreTakenAsTheyStand) {
  for (const char* name : {"a,b.txt", "a", "b.txt", "x*.txt", "x1.txt"}) folder.file(name, "x");
  EXPECT_THAT(names(in_folder("a,b.txt")), ElementsAre("a,b.txt"));
  EXPECT_THAT(names(in_folder("x*.txt")), ElementsAre("x*.txt"));
  EXPECT_THAT(names(in_folder("none")), ElementsAre("none"));
}

TEST_F(Files, RefusesPatternsThatMatchNothingAndNoNames) {
  EXPECT_THAT(error_of([&] { names(in_folder("n*.txt")); }),
              AllOf(HasSubstr("n*.txt"), HasSubstr("data.path"), HasSubstr("got none")));
  for (const char* value : {"", " , "})
    EXPECT_THAT(error_of<UsageError>([&] { files_named("data.test", value, "text"); }),
                HasSubstr("expected the path of a file of text in data.test, got none"));
}

TEST_F(Files, AbsoluteNamesNameTheSameFiles) {
  const std::filesystem::path before = std::filesystem::current_path();
  for (const char* name : {"a.txt", "b1.txt", "b2.txt"}) folder.file(name, "x");
  std::filesystem::current_path(folder.path());
  const std::string value = absolute_names("a.txt,./b?.txt");
  EXPECT_EQ(absolute_names(""), "");
  std::filesystem::current_path(before);
  EXPECT_EQ(value, in_folder("a.txt") + "," + in_folder("b?.txt"));
  EXPECT_THAT(names(value), ElementsAre("a.txt", "b1.txt", "b2.txt"));
}

// Two dots behind a symbolic link are the folder above the one that it leads to.
TEST_F(Files, AbsoluteNamesFollowLinksAsTheSystemDoes) {
  std::filesystem::create_directories(folder / "other" / "inner");
  std::filesystem::create_directory_symlink("other/inner", folder / "link");
  for (const char* name : {"a.txt", "other/a.txt", "other/b.txt"}) folder.file(name, name);
  const std::string real = std::filesystem::canonical(folder / "other");
  EXPECT_EQ(absolute_names(in_folder("link/../a.txt")), real + "/a.txt");
  EXPECT_EQ(absolute_names(in_folder("link/../?.txt")), real + "/?.txt");
  EXPECT_EQ(absolute_names(in_folder("link/.")), in_folder("link"));
}

TEST_F(Files, SeveralInAFolderWithACommaAreRefused) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(folder / "x,y");
  for (const char* name : {"x,y/a.txt", "x,y/b.txt"}) folder.file(name, "x");
  std::filesystem::current_path(folder / "x,y");
  EXPECT_EQ(absolute_names("a.txt"), in_folder("x,y/a.txt"));
  for (const char* value : {"a.txt,b.txt", "*.txt"})
    EXPECT_THAT(error_of<UsageError>([&] { absolute_names(value); }), HasSubstr("without commas")) << value;
  std::filesystem::current_path(before);
}

// All bytes of the examples of a set, in order; padding is left out.
std::string bytes_of(const Dataset& set) {
  std::string result;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(set.length())), targets(tokens);
  for (std::int64_t i = 0; i < set.size(); ++i) {
    set.read(i, tokens, targets);
    for (const std::int32_t target : targets)
      if (target >= 0) result += static_cast<char>(target);
  }
  return result;
}

TEST_F(Files, OfTheirOwnForValidationAndTestingLeaveAllOfThePathToTraining) {
  folder.file("a1.txt", "abcde");
  folder.file("a2.txt", "fghij");
  DataOptions options{.kind = "text", .path = in_folder("a*.txt"), .length = 5};
  options.validation = folder.file("v", "klmnopqrstu");
  options.test = folder.file("t", "vwxyzab");
  const Datasets data = open_datasets(options);
  EXPECT_EQ(data.training->size(), 10 - 5 + 1);
  EXPECT_EQ(bytes_of(*data.validation), "klmnopqrstu");
  EXPECT_EQ(bytes_of(*data.test), "vwxyzab");
  std::filesystem::remove(folder / "a1.txt");
  std::filesystem::remove(folder / "a2.txt");
  EXPECT_EQ(bytes_of(*open_dataset(options, Split::validation)), "klmnopqrstu");
  EXPECT_EQ(bytes_of(*open_dataset(options, Split::test)), "vwxyzab");
  options.test = "";
  EXPECT_THAT(error_of<UsageError>([&] { open_dataset(options, Split::test); }), HasSubstr("data.test"));
  options.validation = folder.file("short", "klm");
  EXPECT_THAT(error_of([&] { open_dataset(options, Split::validation); }),
              AllOf(HasSubstr("short"), HasSubstr("data.length = 5"), HasSubstr("got 3")));
}

TEST_F(Files, OfProteinsAreOneList) {
  std::string first, second;
  for (int i = 0; i < 7; ++i) first += ">x\nAC\n";
  for (int i = 0; i < 7; ++i) second += ">x\nDE\n";
  const DataOptions options{
      .kind = "fasta",
      .path = folder.file("1.fa", first).string() + "," + folder.file("2.fa", second).string(),
      .length = 4};
  const Datasets data = open_datasets(options);
  EXPECT_EQ(data.training->size(), 13);
  ASSERT_EQ(data.validation->size(), 1);
  EXPECT_EQ(bytes_of(*data.validation), std::string("\x02\x03"));
}

TEST_F(Files, KindsWithPartsOfTheirOwnTakeNone) {
  EXPECT_THAT(error_of<UsageError>([] { open_datasets({.kind = "digits", .validation = "x"}); }),
              AllOf(HasSubstr("for data.validation"), HasSubstr("\"digits\"")));
  EXPECT_THAT(error_of<UsageError>([] { open_datasets({.kind = "mnist", .path = "x", .test = "y"}); }),
              HasSubstr("for data.test"));
}

}  // namespace
}  // namespace linnet
