#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "io/file.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A file with this header and `data` bytes behind it.
std::string file_of(std::string_view header, std::size_t data) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(std::uint64_t{header.size()} >> (8 * i));
  return bytes + std::string(header) + std::string(data, '\1');
}

std::string message(std::string_view header, std::size_t data) {
  return error_of([&] { Safetensors::parse(file_of(header, data), "file"); });
}

std::string small_file() {
  const float a[] = {1, 2, 3, 4, 5, 6};
  const std::int64_t b[] = {-1};
  const std::uint8_t c[] = {7, 8, 9};
  const std::vector<NamedTensor> tensors = {{"c", DType::u8, {3}, c},
                                            {"a", DType::f32, {2, 3}, a},
                                            {"b", DType::i64, {}, b},
                                            {"none", DType::f32, {0, 5}, nullptr}};
  return encode_safetensors(tensors, {{"format", "linnet"}, {"note", "ünïcode \"quoted\""}});
}

TEST(Safetensors, RoundTripsEveryType) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "small", small_file());
  const Safetensors file = Safetensors::read(folder / "small");
  EXPECT_THAT(file.names(), ElementsAre("b", "a", "none", "c"));
  EXPECT_EQ(file.metadata().at("note"), "ünïcode \"quoted\"");
  EXPECT_EQ(file.metadata().size(), 2u);
  EXPECT_THAT(file.tensor("a").shape(), ElementsAre(2, 3));
  EXPECT_THAT(file.tensor("a").span<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(file.tensor("b").span<std::int64_t>(), ElementsAre(-1));
  EXPECT_THAT(file.tensor("c").span<std::uint8_t>(), ElementsAre(7, 8, 9));
  EXPECT_THAT(file.shape("none"), ElementsAre(0, 5));
  EXPECT_EQ(file.tensor("none").size(), 0);

  const double f64[] = {0.1};
  const bf16 half[] = {to_bf16(1.5f), to_bf16(-2.0f)};
  const std::int32_t i32[] = {-5};
  const std::vector<NamedTensor> others = {
      {"half", DType::bf16, {2}, half}, {"f64", DType::f64, {1}, f64}, {"i32", DType::i32, {1}, i32}};
  write_safetensors(folder / "others", others, {});
  const Safetensors again = Safetensors::read(folder / "others");
  EXPECT_TRUE(again.metadata().empty());
  EXPECT_EQ(again.tensor("f64").span<double>()[0], 0.1);
  EXPECT_EQ(again.tensor("i32").span<std::int32_t>()[0], -5);
  EXPECT_EQ(to_float(again.tensor("half").span<bf16>()[1]), -2.0f);
}

TEST(Safetensors, DataIsAligned) {
  const std::string bytes = small_file();
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ((8 + header) % 64, 0u);
  EXPECT_EQ(bytes.size(), 8 + header + 8 + 24 + 3);
}

TEST(Safetensors, MayHoldNoTensors) {
  EXPECT_TRUE(Safetensors::parse(encode_safetensors({}, {}), "file").names().empty());
  EXPECT_TRUE(Safetensors::parse(file_of("{}", 0), "file").names().empty());
}

TEST(Safetensors, ReadsAFileOfAnotherWriter) {
  const Safetensors file = Safetensors::parse(
      file_of(R"({"late":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},"early":{"dtype":"F16","shape":[2],)"
              R"("data_offsets":[0,4]},"odd":{"dtype":"Q3","shape":[9],"data_offsets":[5,8]}})",
              8),
      "file");
  EXPECT_THAT(file.names(), ElementsAre("early", "late", "odd"));
  EXPECT_EQ(file.tensor("late").span<std::uint8_t>()[0], 1);
  EXPECT_THAT(file.shape("early"), ElementsAre(2));
  EXPECT_THAT(error_of([&] { file.tensor("early"); }), AllOf(HasSubstr("early"), HasSubstr("F16")));
  EXPECT_THAT(error_of([&] { file.dtype("odd"); }), HasSubstr("Q3"));
}

TEST(Safetensors, GivesPartsOfTensorsOfAnyType) {
  const std::string header = R"({"a":{"dtype":"U16","shape":[3],"data_offsets":[0,6]},)"
                             R"("b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})";
  std::string bytes = file_of(header, 8);
  for (std::size_t i = 0; i < 8; ++i) bytes[8 + header.size() + i] = static_cast<char>(i);
  const TemporaryFolder folder;
  for (const Safetensors& file :
       {Safetensors::parse(bytes, "file"), Safetensors::read(folder.file("file", bytes))}) {
    EXPECT_EQ(file.type("a"), "U16");
    EXPECT_EQ(file.type("b"), "U8");
    std::vector<std::byte> part(2);
    file.copy_part("a", 3, part);
    EXPECT_THAT(part, ElementsAre(std::byte{3}, std::byte{4}));
    file.copy_part("b", 0, part);
    EXPECT_THAT(part, ElementsAre(std::byte{6}, std::byte{7}));
    for (const std::uint64_t offset : {std::uint64_t{5}, std::uint64_t{7}, ~std::uint64_t{0}})
      EXPECT_THAT(error_of([&] { file.copy_part("a", offset, part); }),
                  AllOf(HasSubstr("6 bytes of tensor \"a\""), HasSubstr("got 2 bytes from")));
    EXPECT_THAT(error_of([&] { file.type("c"); }), HasSubstr("\"c\""));
  }
}

TEST(Safetensors, NamesTheNearestTensor) {
  const Safetensors file =
      Safetensors::parse(file_of(R"({"weight":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0), "file");
  EXPECT_FALSE(file.contains("wieght"));
  EXPECT_THAT(error_of([&] { file.tensor("wieght"); }), AllOf(HasSubstr("file"), HasSubstr("\"weight\"")));
}

TEST(Safetensors, EveryContradictionIsAnError) {
  const auto header = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string(R"({"a":{"dtype":)") + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
           "}}";
  };
  EXPECT_NO_THROW(Safetensors::parse(file_of(header("\"F32\"", "[2]", "[0,8]"), 8), "file"));
  EXPECT_THAT(message(header("\"F32\"", "[2]", "[0,8]"), 9), HasSubstr("where the last tensor ends"));
  EXPECT_THAT(message(header("\"F32\"", "[2]", "[0,8]"), 7),
              AllOf(HasSubstr("8 bytes"), HasSubstr("got 7"), HasSubstr("truncated")));
  EXPECT_THAT(message(header("\"F32\"", "[2]", "[1,9]"), 9), HasSubstr("expected tensor \"a\" at byte 0"));
  EXPECT_THAT(message(header("\"F32\"", "[2]", "[8,0]"), 8), HasSubstr("data_offsets"));
  EXPECT_THAT(message(header("\"F32\"", "[2]", "[0]"), 8), HasSubstr("data_offsets"));
  EXPECT_THAT(message(header("\"F32\"", "[2]", "[0,8.5]"), 8), HasSubstr("integers"));
  EXPECT_THAT(message(header("\"F32\"", "[-2]", "[0,8]"), 8), HasSubstr("integers"));
  EXPECT_THAT(message(header("\"F32\"", "[3]", "[0,8]"), 8), HasSubstr("expected 12 bytes"));
  EXPECT_THAT(message(header("\"F32\"", "2", "[0,8]"), 8), HasSubstr("list \"shape\""));
  EXPECT_THAT(message(header("7", "[2]", "[0,8]"), 8), HasSubstr("dtype"));
  EXPECT_THAT(message(header("\"F32\"", "[4294967296,4294967296]", "[0,8]"), 8), HasSubstr("2^63"));
  EXPECT_THAT(message(header("\"F32\"", "[9223372036854775807]", "[0,8]"), 8), HasSubstr("2^63"));
  EXPECT_THAT(message(header("\"F32\"", "[18446744073709551615]", "[0,8]"), 8), HasSubstr("integers"));
  EXPECT_THAT(message(R"({"a":1})", 0), HasSubstr("object"));
  EXPECT_THAT(message("[]", 0), HasSubstr("object"));
  EXPECT_THAT(message(R"({"__metadata__":{"a":1}})", 0), HasSubstr("metadata"));
  EXPECT_THAT(
      message(
          R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
          0),
      HasSubstr("twice"));
  EXPECT_THAT(
      message(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
          3),
      HasSubstr("where the one before it ends"));
  EXPECT_THAT(error_of([] { Safetensors::parse("1234567", "file"); }), HasSubstr("at least 8"));
  EXPECT_THAT(error_of([] { Safetensors::parse(std::string(8, '\xff'), "file"); }),
              HasSubstr("at most 100000000"));
  EXPECT_THAT(error_of([] { Safetensors::parse(file_of("{}", 0).substr(0, 9), "file"); }),
              HasSubstr("header of 2 bytes"));
}

TEST(Safetensors, ATruncatedFileIsCalledTruncated) {
  const TemporaryFolder folder;
  const std::vector<float> numbers(12, 1.5f);
  const std::vector<NamedTensor> tensors = {{"a", DType::f32, {8}, numbers.data()},
                                            {"b", DType::f32, {4}, numbers.data()}};
  const std::string whole = encode_safetensors(tensors, {{"format", "linnet"}});
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const auto path = folder.file("part.safetensors", std::string_view(whole).substr(0, bytes));
    EXPECT_THAT(error_of([&] { Safetensors::read(path); }),
                AllOf(HasSubstr("part.safetensors"), HasSubstr("truncated")))
        << bytes << " bytes";
  }
}

TEST(Safetensors, WritersErrorsAreErrorsToo) {
  const std::vector<NamedTensor> twice = {{"a", DType::u8, {0}, nullptr}, {"a", DType::u8, {0}, nullptr}};
  EXPECT_THAT(error_of([&] { encode_safetensors(twice, {}); }), HasSubstr("\"a\" twice"));
  const std::vector<NamedTensor> reserved = {{"__metadata__", DType::u8, {0}, nullptr}};
  EXPECT_THROW(encode_safetensors(reserved, {}), Error);
}

// Reads all there is; a damaged file may be read (a changed element) or be an Error, nothing else.
bool reads(std::string bytes) {
  try {
    const Safetensors file = Safetensors::parse(std::move(bytes), "file");
    for (const std::string& name : file.names()) {
      file.shape(name);
      file.tensor(name);
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string whole = small_file();
  ASSERT_TRUE(reads(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(reads(whole.substr(0, size))) << size;
  EXPECT_FALSE(reads(whole + '\0'));
}

TEST(Safetensors, EveryFlippedBitIsAnError) {
  const std::string whole = small_file();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_FALSE(reads(std::move(damaged))) << "bit " << bit << " of byte " << i;
    }
  }
}

TEST(Safetensors, DamagedElementsNameTheirTensorHoweverTheyAreRead) {
  const TemporaryFolder folder;
  std::string damaged = small_file();
  damaged[damaged.size() - 5] ^= 1;  // the last of a's 24 bytes is the fourth from the end
  const Safetensors file = Safetensors::read(folder.file("file", damaged));
  const auto names_it = AllOf(HasSubstr("file"), HasSubstr("digest"), HasSubstr("tensor \"a\""));
  EXPECT_THAT(error_of([&] { file.tensor("a"); }), names_it);
  EXPECT_THAT(error_of([&] { file.check_digests(); }), names_it);
  EXPECT_EQ(file.tensor("b").span<std::int64_t>()[0], -1);
  EXPECT_NO_THROW(Safetensors::parse(small_file(), "file").check_digests());
}

TEST(Safetensors, DigestsOfOtherTensorsAreAnError) {
  const auto with = [](const std::string& metadata) {
    return R"({"__metadata__":{)" + metadata + R"(},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  };
  EXPECT_NO_THROW(Safetensors::parse(file_of(with(""), 1), "file").check_digests());
  EXPECT_THAT(message(with(R"("xxh3:a":"0123456789abcdef")"), 1), HasSubstr("\"xxh3\""));
  EXPECT_THAT(message(with(R"("xxh3":"0123456789abcdef")"), 1), HasSubstr("\"xxh3:a\""));
  EXPECT_THAT(message(with(R"("xxh3":"0","xxh3:a":"0","xxh3:b":"0")"), 1), HasSubstr("\"xxh3:b\""));
  EXPECT_THAT(message(with(R"("xxh3":"0","xxh3:a":"0")"), 1), HasSubstr("names, types and shapes"));
}

TEST(Safetensors, AHeaderOfManyTensorsIsReadOnce) {
  // Quadratic work in them would take minutes.
  constexpr int count = 100'000;
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < count; ++i) tensors.push_back({"tensor " + std::to_string(i), DType::u8, {0}, nullptr});
  const Safetensors file = Safetensors::parse(encode_safetensors(tensors, {}), "file");
  EXPECT_EQ(file.names().size(), static_cast<std::size_t>(count));
  EXPECT_TRUE(file.contains("tensor 99999"));
}

TEST(Safetensors, ErrorsShortenWhatTheyQuote) {
  const std::string name(3'000'000, 'n');
  const std::string what = message("{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,2]}})", 2);
  EXPECT_THAT(what, HasSubstr("3000000 bytes"));
  EXPECT_LT(what.size(), 500u);
  std::string numbers = "[0";
  for (int i = 0; i < 100'000; ++i) numbers += ",1";
  EXPECT_LT(message(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":)" + numbers + "]}}", 2).size(), 500u);
}

TEST(Safetensors, DamagedBytesNeverCrash) {
  const std::string whole = small_file();
  constexpr unsigned seed = 1;
  std::mt19937 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = whole;
    for (unsigned changes = 1 + random() % 6; changes > 0; --changes) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged[at] = static_cast<char>(random());
          break;
        case 1:
          damaged.erase(at, random() % 9);
          break;
        default:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 9));
      }
      if (damaged.empty()) break;
    }
    reads(std::move(damaged));
  }
}

}  // namespace
}  // namespace linnet
