#include "data/tokens.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "support/data_folder.h"
#include "support/npy.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Row = std::vector<std::int32_t>;

struct Example {
  Row tokens, targets;
};

Example example(const Dataset& set, std::int64_t index) {
  const auto elements = static_cast<std::size_t>(set.length()) * set.fields().size();
  Example result{Row(elements, 77), Row(elements, 77)};
  EXPECT_EQ(set.read(index, result.tokens, result.targets), -1);
  return result;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The tokens first, first + 1, …
template <class T = std::int32_t>
std::vector<T> counting(std::int64_t count, T first = 0) {
  std::vector<T> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<T>(first + i));
  return tokens;
}

std::string npy_of(const std::string& descr, const std::string& shape, const std::string& data) {
  return npy_file("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }", data);
}

class Tokens : public testing::Test {
 protected:
  std::string safetensors(const char* name, const Shape& shape, const std::vector<std::int32_t>& tokens,
                          const std::vector<std::int64_t>& offsets = {}) {
    std::vector<NamedTensor> tensors = {{"tokens", DType::i32, shape, tokens.data()}};
    if (!offsets.empty()) tensors.push_back({"offsets", DType::i64, {std::ssize(offsets)}, offsets.data()});
    write_safetensors(folder / name, tensors, {});
    return (folder / name).string();
  }
  std::string raw(const char* name, const std::vector<std::uint16_t>& tokens) {
    return folder.file(name, bytes_of(tokens)).string();
  }
  std::string refusal(const DataOptions& options) {
    return error_of([&] { open_datasets(options); });
  }

  TemporaryFolder folder;
};

TEST_F(Tokens, HaveSeveralFieldsAStepAndPadding) {
  // Two pieces of two and three steps; every part is named, so that nothing is held out.
  const std::string path =
      safetensors("a.safetensors", {5, 2}, {0, 10, 1, 11, 2, 12, 3, 13, 4, 14}, {0, 2, 2, 5});
  const Datasets data =
      open_datasets({.kind = "tokens", .path = path, .length = 3, .validation = path, .test = path});
  for (const Dataset* set : {data.training.get(), data.validation.get(), data.test.get()}) {
    EXPECT_EQ(set->vocabulary(), 15);
    EXPECT_THAT(set->fields(), ElementsAre(5, 15));
    ASSERT_EQ(set->size(), 2);
    EXPECT_THAT(example(*set, 0).tokens, ElementsAre(0, 10, 1, 11, -1, -1));
    EXPECT_THAT(example(*set, 1).tokens, ElementsAre(2, 12, 3, 13, 4, 14));
    for (const int i : {0, 1}) EXPECT_EQ(example(*set, i).tokens, example(*set, i).targets);
  }
}

TEST_F(Tokens, OfEveryFormatAndTypeAreTheSame) {
  const auto tokens_of = [&](const std::string& name, const std::string& bytes,
                             std::int64_t token_bytes = 2) {
    const std::string path = folder.file(name, bytes).string();
    const Datasets data = open_datasets(
        {.kind = "tokens", .path = path, .length = 3, .validation = path, .token_bytes = token_bytes});
    EXPECT_EQ(data.training->vocabulary(), 101);
    EXPECT_EQ(data.training->size(), 1);
    return example(*data.training, 0).tokens;
  };
  const auto npy = [&]<class T>(const std::string& descr, T) {
    return tokens_of("a.npy", npy_of(descr, "(3,)", bytes_of(std::vector<T>{7, 100, 0})));
  };
  const auto safe = [&]<class T>(const std::string& type, T) {
    const std::string data = bytes_of(std::vector<T>{7, 100, 0});
    std::string header =
        fmt::format(R"({{"tokens":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})", type, data.size());
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return tokens_of("a.safetensors", bytes_of(std::vector<std::uint64_t>{header.size()}) + header + data);
  };
  const auto expected = ElementsAre(7, 100, 0);
  EXPECT_THAT(npy("|i1", std::int8_t{}), expected);
  EXPECT_THAT(npy("<i2", std::int16_t{}), expected);
  EXPECT_THAT(npy("<i4", std::int32_t{}), expected);
  EXPECT_THAT(npy("<i8", std::int64_t{}), expected);
  EXPECT_THAT(npy("|u1", std::uint8_t{}), expected);
  EXPECT_THAT(npy("<u2", std::uint16_t{}), expected);
  EXPECT_THAT(npy("<u4", std::uint32_t{}), expected);
  EXPECT_THAT(safe("I8", std::int8_t{}), expected);
  EXPECT_THAT(safe("I16", std::int16_t{}), expected);
  EXPECT_THAT(safe("I32", std::int32_t{}), expected);
  EXPECT_THAT(safe("I64", std::int64_t{}), expected);
  EXPECT_THAT(safe("U8", std::uint8_t{}), expected);
  EXPECT_THAT(safe("U16", std::uint16_t{}), expected);
  EXPECT_THAT(safe("U32", std::uint32_t{}), expected);
  EXPECT_THAT(tokens_of("a.bin", bytes_of(std::vector<std::uint16_t>{7, 100, 0})), expected);
  EXPECT_THAT(tokens_of("a.bin", bytes_of(std::vector<std::uint32_t>{7, 100, 0}), 4), expected);
}

TEST_F(Tokens, OfOneSequenceTrainOnEveryWindowOfTheFirstNineTenths) {
  const Datasets data =
      open_datasets({.kind = "tokens", .path = raw("a.bin", counting<std::uint16_t>(1005)), .length = 16});
  ASSERT_EQ(data.training->size(), 905 - 16 + 1);
  for (const std::int64_t i : {std::int64_t{0}, std::int64_t{400}, data.training->size() - 1}) {
    EXPECT_EQ(example(*data.training, i).tokens, counting(16, static_cast<std::int32_t>(i)));
    EXPECT_EQ(example(*data.training, i).targets, example(*data.training, i).tokens);
  }
  EXPECT_EQ(example(*data.validation, 0).tokens, counting(16, 905));
}

TEST_F(Tokens, EveryStepOfValidationCountsOnceWithContext) {
  for (const std::int64_t length : {1, 2, 3, 7, 8, 32}) {
    // Pieces of all lengths up to 70 behind one another.
    std::vector<std::int64_t> offsets = {0};
    for (std::int64_t steps = 1; steps <= 70; ++steps) offsets.push_back(offsets.back() + steps);
    const std::string path =
        safetensors("a.safetensors", {offsets.back()}, counting(offsets.back()), offsets);
    const auto set = open_dataset({.kind = "tokens", .path = path, .length = length, .validation = path},
                                  Split::validation);
    std::vector<int> counted(static_cast<std::size_t>(offsets.back()));
    for (std::int64_t i = 0; i < set->size(); ++i) {
      const auto [tokens, targets] = example(*set, i);
      bool counts = false;
      for (std::size_t k = 0; k < tokens.size(); ++k) {
        if (targets[k] < 0) {
          EXPECT_TRUE(!counts || tokens[k] < 0);
          continue;
        }
        // The first that counts begins its piece or has half a window before it.
        const bool begins_piece = std::ranges::count(offsets, targets[k]) > 0;
        const std::size_t half = std::max<std::size_t>(1, tokens.size() / 2);
        EXPECT_TRUE(counts || (k == 0 && begins_piece) || k >= tokens.size() - half);
        EXPECT_FALSE((counts || k > 0) && begins_piece);
        counts = true;
        EXPECT_EQ(targets[k], tokens[k]);
        ++counted[static_cast<std::size_t>(targets[k])];
      }
    }
    EXPECT_THAT(counted, Each(1)) << length;
  }
}

TEST_F(Tokens, LongPiecesTrainOnOverlappingWindowsFromEndToEnd) {
  const std::string path = safetensors("a.safetensors", {30}, counting(30), {0, 25, 30});
  const auto set =
      open_dataset({.kind = "tokens", .path = path, .length = 8, .validation = path}, Split::training);
  // ⌈(25 − 8) / 4⌉ + 1 windows of the first piece, and one of the second.
  ASSERT_EQ(set->size(), 6 + 1);
  std::int32_t before = -4;
  for (std::int64_t i = 0; i < 6; ++i) {
    const auto [tokens, targets] = example(*set, i);
    EXPECT_EQ(tokens, counting(8, tokens[0]));
    EXPECT_EQ(tokens, targets);
    EXPECT_TRUE(tokens[0] > before && tokens[0] <= before + 4);
    before = tokens[0];
  }
  EXPECT_EQ(example(*set, 0).tokens[0], 0);
  EXPECT_EQ(before, 25 - 8);
  EXPECT_THAT(example(*set, 6).tokens, ElementsAre(25, 26, 27, 28, 29, -1, -1, -1));
}

TEST_F(Tokens, HoldOutEveryTenthPiece) {
  std::vector<std::int64_t> offsets = {0};
  for (int i = 0; i < 21; ++i) offsets.push_back(offsets.back() + 2);
  const Datasets data = open_datasets(
      {.kind = "tokens", .path = safetensors("a.safetensors", {42}, counting(42), offsets), .length = 2});
  EXPECT_EQ(data.training->size(), 19);
  ASSERT_EQ(data.validation->size(), 2);
  EXPECT_THAT(example(*data.validation, 0).tokens, ElementsAre(18, 19));
  EXPECT_THAT(example(*data.validation, 1).tokens, ElementsAre(38, 39));
  EXPECT_EQ(data.validation->vocabulary(), 42);
}

TEST_F(Tokens, OfSeveralFilesAndTheirOffsets) {
  for (const char* name : {"a", "b"}) {
    folder.file(std::string(name) + ".npy", npy_of("<i4", "(4,)", bytes_of(counting(4, name[0] - 'a'))));
    folder.file(std::string(name) + ".offsets.npy",
                npy_of("<i8", "(3,)", bytes_of(std::vector<std::int64_t>{0, 1, 4})));
  }
  const std::string all = (folder / "*.npy").string();
  const auto set =
      open_dataset({.kind = "tokens", .path = all, .length = 3, .validation = all}, Split::training);
  ASSERT_EQ(set->size(), 4);
  EXPECT_THAT(example(*set, 0).tokens, ElementsAre(0, -1, -1));
  EXPECT_THAT(example(*set, 3).tokens, ElementsAre(2, 3, 4));
}

TEST_F(Tokens, TheVocabularyIsOneForAllParts) {
  DataOptions options{.kind = "tokens", .path = raw("a.bin", {1, 2}), .length = 2};
  options.validation = raw("v.bin", {1, 8});
  options.test = raw("t.bin", {5, 4});
  for (const Split split : {Split::training, Split::validation, Split::test})
    EXPECT_EQ(open_dataset(options, split)->vocabulary(), 9);
  options.fields = "70000";
  std::filesystem::remove(options.path);
  EXPECT_EQ(open_dataset(options, Split::test)->vocabulary(), 70000);
  options.fields = "5";
  EXPECT_THAT(error_of([&] { open_dataset(options, Split::test); }),
              AllOf(HasSubstr("t.bin"), HasSubstr("from 0 to 4, got 5 in step 0")));
}

TEST_F(Tokens, OfRawFilesMayHaveSeveralFields) {
  const auto set = open_dataset({.kind = "tokens",
                                 .path = raw("a.bin", {0, 9, 1, 8, 2, 7}),
                                 .length = 2,
                                 .validation = folder / "a.bin",
                                 .fields = "3, 10"},
                                Split::training);
  ASSERT_EQ(set->size(), 2);
  EXPECT_THAT(set->fields(), ElementsAre(3, 10));
  EXPECT_THAT(example(*set, 1).tokens, ElementsAre(1, 8, 2, 7));
  EXPECT_THAT(refusal({.kind = "tokens", .path = raw("b.bin", {1, 2, 3}), .length = 2, .fields = "9,9"}),
              AllOf(HasSubstr("b.bin"), HasSubstr("multiple of 4 bytes"), HasSubstr("got 6 bytes")));
}

TEST_F(Tokens, OfRawFilesMayBeLargerThanMemory) {
  const std::string path = raw("large.bin", {1, 2});
  constexpr std::int64_t steps = std::int64_t{1} << 36;
  std::filesystem::resize_file(path, 2 * steps);  // zeros that take no space
  const auto set = open_dataset(
      {.kind = "tokens", .path = path, .length = 4, .validation = path, .fields = "65536"}, Split::training);
  EXPECT_EQ(set->size(), steps - 4 + 1);
  EXPECT_THAT(example(*set, 0).tokens, ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(example(*set, steps - 4).tokens, ElementsAre(0, 0, 0, 0));
}

TEST_F(Tokens, WindowsOfLargeFilesLieWhereTheyDoInSmallOnes) {
  constexpr std::int64_t steps = std::int64_t{1} << 36, length = 6, stride = 3;
  constexpr std::int64_t last = (steps - length + stride - 1) / stride,
                         spare = last * stride - (steps - length);
  static_assert(spare == 2);
  // Windows lie 3 steps apart, but two steps less in all: from the middle on they begin both of them earlier.
  constexpr std::int64_t window = last / 2 + 5, begin = stride * window - spare;
  const std::string path = raw("large.bin", {1, 2});
  std::filesystem::resize_file(path, 2 * steps);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (const auto& [step, token] : {std::pair(begin, 7), std::pair(steps - 1, 9)}) {
    file.seekp(2 * step);
    file.put(static_cast<char>(token));
  }
  file.close();
  const auto set =
      open_dataset({.kind = "tokens", .path = path, .length = length, .validation = path, .fields = "65536"},
                   Split::validation);
  ASSERT_EQ(set->size(), last + 1);
  EXPECT_THAT(example(*set, 0).tokens, ElementsAre(1, 2, 0, 0, 0, 0));
  EXPECT_THAT(example(*set, window).tokens, ElementsAre(7, 0, 0, 0, 0, 0));
  EXPECT_THAT(example(*set, window).targets, ElementsAre(-1, -1, -1, 0, 0, 0));
  EXPECT_THAT(example(*set, last).tokens, ElementsAre(0, 0, 0, 0, 0, 9));
}

TEST_F(Tokens, FilesThatChangeAreErrorsAndNotTokens) {
  const std::string path = raw("a.bin", {1, 2, 3, 4});
  const auto set =
      open_dataset({.kind = "tokens", .path = path, .length = 2, .validation = path}, Split::training);
  raw("a.bin", {1, 2, 3, 9});
  EXPECT_THAT(error_of([&] { example(*set, 2); }), HasSubstr("got 9 in step 3"));
  raw("a.bin", {1, 2, 3});
  EXPECT_THAT(error_of([&] { example(*set, 2); }), HasSubstr("cut"));
}

TEST_F(Tokens, RefusesOffsetsAndTokensThatCannotBe) {
  const auto with = [&](const std::vector<std::int32_t>& tokens, const std::vector<std::int64_t>& offsets,
                        const Shape& shape = {4}) {
    const std::string message = refusal(
        {.kind = "tokens", .path = safetensors("a.safetensors", shape, tokens, offsets), .length = 2});
    EXPECT_THAT(message, HasSubstr("a.safetensors"));
    return message;
  };
  EXPECT_THAT(with({1, 2, 3, 4}, {0, 3, 2, 4}), HasSubstr("do not decrease, got 2 behind 3 at index 2"));
  EXPECT_THAT(with({1, 2, 3, 4}, {1, 4}), HasSubstr("begin at 0, got 1"));
  EXPECT_THAT(with({1, 2, 3, 4}, {0, 3}), HasSubstr("end at 4, the number of steps, got 3"));
  EXPECT_THAT(with({1, 2, 3, 4}, {0}), HasSubstr("got shape [1]"));
  EXPECT_THAT(with({1, 2, -3, 4}, {0, 4}), HasSubstr("got -3 in step 2"));
  EXPECT_THAT(with({1, 2, 3, -4}, {}, {2, 2}), HasSubstr("in field 1, got -4 in step 1"));
  EXPECT_THAT(with({1, 2, 3, 4}, {}, {1, 2, 2}), HasSubstr("got shape [1, 2, 2]"));
  EXPECT_THAT(with({1, 2, 3, 4}, {0, 2, 4}), HasSubstr("at least 10 pieces"));
  EXPECT_THAT(with({1, 2, 3, 4}, {}), HasSubstr("at least 10 steps"));
}

TEST_F(Tokens, RefusesFilesAndOptionsThatDoNotFit) {
  const auto of = [&](const std::string& path, const std::string& fields = "") {
    return refusal({.kind = "tokens", .path = path, .length = 2, .fields = fields});
  };
  const std::string good = raw("a.bin", counting<std::uint16_t>(40));
  EXPECT_THAT(of(folder / "none.bin"), HasSubstr("none.bin"));
  EXPECT_THAT(of(folder.file("tokens.txt", "1 2 3")), AllOf(HasSubstr("tokens.txt"), HasSubstr(".npy")));
  EXPECT_THAT(of(folder.file("empty.bin", "")), HasSubstr("at least 1 step"));
  EXPECT_THAT(of(folder.file("odd.bin", "abc")), AllOf(HasSubstr("2 bytes"), HasSubstr("got 3 bytes")));
  EXPECT_THAT(of(folder.file("f.npy", npy_of("<f4", "(1,)", "1234"))), HasSubstr("'f4'"));
  EXPECT_THAT(of(folder.file("u.npy", npy_of("<u8", "(1,)", "12345678"))), HasSubstr("'u8'"));
  EXPECT_THAT(of(folder.file("b.npy", npy_of("<i8", "(1,)", std::string(8, '\x7f')))),
              HasSubstr("from 0 to 2147483647"));
  EXPECT_THAT(of(good + "," + safetensors("two.safetensors", {2, 2}, {1, 2, 3, 4})),
              AllOf(HasSubstr("two.safetensors"), HasSubstr("1 fields as in"), HasSubstr("got 2")));
  EXPECT_THAT(of(safetensors("two.safetensors", {2, 2}, {1, 2, 3, 4}), "9"),
              HasSubstr("1 fields as data.fields"));
  const std::vector<float> numbers = {1};
  write_safetensors(folder / "f.safetensors",
                    std::vector<NamedTensor>{{"tokens", DType::f32, {1}, numbers.data()}}, {});
  EXPECT_THAT(of(folder / "f.safetensors"), HasSubstr("got F32"));
  write_safetensors(folder / "f.safetensors",
                    std::vector<NamedTensor>{{"token", DType::f32, {1}, numbers.data()}}, {});
  EXPECT_THAT(of(folder / "f.safetensors"), AllOf(HasSubstr("\"tokens\""), HasSubstr("\"token\" among")));
  for (const char* fields : {"x", "0", "-1", "5,", ",5", "5;6", "99999999999999999999", "4294967296", " "})
    EXPECT_THAT(of(good, fields), AllOf(HasSubstr("data.fields"), HasSubstr(fields))) << fields;
  EXPECT_THAT(refusal({.kind = "tokens", .path = good}), HasSubstr("data.length"));
  EXPECT_THAT(refusal({.kind = "tokens", .length = 2}), HasSubstr("path"));
  EXPECT_THAT(refusal({.kind = "tokens", .path = good, .length = 2, .token_bytes = 3}), HasSubstr("got 3"));
}

TEST_F(Tokens, ReadTheMusicOfTheSharedData) {
  const std::filesystem::path music = data_folder() / "music";
  if (!std::filesystem::exists(music))
    GTEST_SKIP() << "needs the chorales in " << music << "; set LINNET_DATA to the folder that holds music/";
  const Datasets data = open_datasets({.kind = "tokens",
                                       .path = music / "jsb_train.safetensors",
                                       .length = 256,
                                       .validation = music / "jsb_valid.safetensors",
                                       .test = music / "jsb_test.safetensors"});
  EXPECT_EQ(data.training->fields().size(), 4u);
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < data.test->size(); ++i)
    counted += std::ranges::count_if(example(*data.test, i).targets, [](std::int32_t t) { return t >= 0; });
  EXPECT_EQ(counted, 18900 * 4);
}

}  // namespace
}  // namespace linnet
