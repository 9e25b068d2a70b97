#include "data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// Every value 0 … 255 occurs, at a place that tells where it is.
std::string text_of(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 13 + i / 256);
  return text;
}

TEST(Text, OverlappingWindowsCountEveryByteOnce) {
  for (const std::int64_t length : {1, 2, 3, 7, 8, 64}) {
    for (const std::int64_t more : {0, 1, 2, 3, 31, 32, 33, 100}) {
      const std::string text = text_of(static_cast<std::size_t>(length + more));
      const auto windows = overlapping_windows(text, length);
      std::vector<int> counted(text.size());
      std::size_t next = 0;  // bytes are counted in order
      for (std::int64_t i = 0; i < windows->size(); ++i) {
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(length)), targets(tokens);
        EXPECT_EQ(windows->read(i, tokens, targets), -1);
        std::size_t context = 0;
        while (targets[context] == -1) ++context;
        if (i > 0)
          EXPECT_GE(context, tokens.size() - std::max<std::size_t>(1, tokens.size() / 2)) << i;
        else
          EXPECT_EQ(context, 0u);
        for (std::size_t k = context; k < tokens.size(); ++k) {
          ASSERT_LT(next, text.size());
          EXPECT_EQ(targets[k], tokens[k]);
          EXPECT_EQ(targets[k], static_cast<std::uint8_t>(text[next]));
          ++counted[next++];
        }
      }
      EXPECT_THAT(counted, Each(1)) << length << ' ' << more;
    }
  }
}

TEST(Text, TrainsOnEveryWindowOfTheFirstNineTenths) {
  const TemporaryFolder folder;
  const std::string text = text_of(1005);
  const Datasets data = open_datasets({.kind = "bytes", .path = folder.file("bytes", text), .length = 16});
  ASSERT_EQ(data.training->size(), 905 - 16 + 1);
  EXPECT_EQ(data.training->vocabulary(), 256);
  EXPECT_EQ(data.training->length(), 16);
  std::vector<std::int32_t> tokens(16), targets(16);
  for (const std::int64_t i : {std::int64_t{0}, std::int64_t{400}, data.training->size() - 1}) {
    data.training->read(i, tokens, targets);
    EXPECT_EQ(tokens, targets);
    for (std::size_t k = 0; k < 16; ++k)
      EXPECT_EQ(tokens[k], static_cast<std::uint8_t>(text[static_cast<std::size_t>(i) + k]));
  }
  data.validation->read(0, tokens, targets);
  EXPECT_EQ(tokens[0], static_cast<std::uint8_t>(text[905]));
}

TEST(Text, TooShortOrMissingFilesAreErrors) {
  const TemporaryFolder folder;
  const auto error = [&](const std::filesystem::path& path) {
    return error_of([&] { open_datasets({.kind = "bytes", .path = path, .length = 16}); });
  };
  EXPECT_THAT(
      error(folder.file("short", text_of(159))),
      AllOf(HasSubstr("short"), HasSubstr("at least data.length = 16 bytes"), HasSubstr("got 15 of 159")));
  EXPECT_THAT(error(folder.file("empty", "")), HasSubstr("empty"));
  EXPECT_THAT(error(folder / "none"), HasSubstr("No such file"));
  EXPECT_NO_THROW(
      open_datasets({.kind = "bytes", .path = folder.file("enough", text_of(160)), .length = 16}));
}

TEST(Text, BinaryFilesAreRefusedUnlessTheirKindIsBytes) {
  const TemporaryFolder folder;
  std::string text(400, 'a');
  const std::filesystem::path path = folder.file("text", text);
  EXPECT_NO_THROW(open_datasets({.kind = "text", .path = path, .length = 16}));
  text[123] = '\0';
  const std::filesystem::path binary = folder.file("binary", text);
  EXPECT_THAT(error_of([&] { open_datasets({.kind = "text", .path = binary, .length = 16}); }),
              AllOf(HasSubstr("binary"), HasSubstr("byte 123 is 0"), HasSubstr("\"bytes\"")));
  EXPECT_EQ(open_datasets({.kind = "bytes", .path = binary, .length = 16}).training->vocabulary(), 256);
}

}  // namespace
}  // namespace linnet
