// `attend` under every mask, type and decay does what the library does on the same numbers: the same bits, or
// the same refusal.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>

#include "apps/bench_rows.h"
#include "apps/refusal.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "linnet/attention.h"
#include "linnet/error.h"
#include "support/contexts.h"

namespace linnet {
namespace {

using testing::HasSubstr;

constexpr std::int64_t batch = 2, length = 37, heads = 3;

/// One call: options of the program, and the same for the library.
struct Case {
  Strings options;
  Mask mask = Mask::full();
  std::vector<float> decay = {};
  Family family = Family::linear;
  std::string refusal = {};  ///< words of it where the library refuses the call
};

class AttendMasks : public testing::Test {
 protected:
  AttendMasks() {
    for (std::int64_t i = 0; i < length; ++i) {
      begin_.push_back(std::max<std::int64_t>(0, i - 5 - i % 2));
      end_.push_back(std::min(length, i + 3));
    }
    std::sort(begin_.begin(), begin_.end());
    std::mt19937 random(5);
    for (std::uint8_t& seen : visible_.span<std::uint8_t>()) seen = random() % 3 == 0;
  }

  /// q, k, v and grad_out of that type, with everything that masks and decays look for in the file.
  std::string write(DType type) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    tensors_.clear();
    std::vector<NamedTensor> named;
    const std::pair<const char*, std::int64_t> inputs[] = {{"q", 8}, {"k", 8}, {"v", 5}, {"grad_out", 5}};
    for (const auto& [name, dim] : inputs) {
      Tensor tensor(type, {batch, length, heads, dim});
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        const float value = normal(random);
        if (type == DType::bf16)
          tensor.span<bf16>()[static_cast<std::size_t>(i)] = to_bf16(value);
        else
          tensor.span<float>()[static_cast<std::size_t>(i)] = value;
      }
      tensors_.push_back(std::move(tensor));
      named.push_back({name, type, tensors_.back().shape(), tensors_.back().raw()});
    }
    const std::vector<std::int32_t> narrow(end_.begin(), end_.end());
    named.push_back({"begin", DType::i64, {length}, begin_.data()});
    named.push_back({"end", DType::i32, {length}, narrow.data()});
    named.push_back({"mask", DType::u8, visible_.shape(), visible_.raw()});
    write_safetensors(in_, named, {});
    return in_.string();
  }

  /// What the library gives: tensors by name, or the sentence with which it refuses.
  struct Answer {
    std::vector<std::pair<std::string, Tensor>> tensors;
    std::string refusal;
  };
  Answer library(const Case& one) const {
    AttentionOptions options;
    options.family = one.family;
    const auto attention = make_attention(options);
    const DType type = tensors_[0].dtype();
    AttentionInputs inputs{tensors_[0].float_view(), tensors_[1].float_view(), tensors_[2].float_view(),
                           one.mask};
    Tensor ddecay = Tensor::of<float>({heads}), normaliser = Tensor::of<float>({batch, length, heads});
    Tensor out(type, tensors_[2].shape()), dq(type, tensors_[0].shape()), dk(type, tensors_[1].shape()),
        dv(type, tensors_[2].shape());
    AttentionGradients gradients{dq.float_view(), dk.float_view(), dv.float_view()};
    if (!one.decay.empty()) {
      inputs.decay = {one.decay.data(), {heads}};
      gradients.decay = ddecay.view<float>();
    }
    Answer answer;
    try {
      attention->forward(any_context(), {out.float_view(), normaliser.view<float>()}, inputs);
      attention->backward(any_context(), gradients, tensors_[3].float_view(), inputs,
                          std::as_const(out).float_view(), std::as_const(normaliser).view<float>());
    } catch (const Error& error) {
      answer.refusal = error.what();
      return answer;
    }
    answer.tensors.emplace_back("out", std::move(out));
    answer.tensors.emplace_back("dq", std::move(dq));
    answer.tensors.emplace_back("dk", std::move(dk));
    answer.tensors.emplace_back("dv", std::move(dv));
    if (!one.decay.empty()) answer.tensors.emplace_back("ddecay", std::move(ddecay));
    return answer;
  }

  void expect_library(const std::string& in, const Case& one) {
    Strings arguments =
        joined({"attend", in, "--out", out_, "--gradients", "--family", name_of(one.family)}, one.options);
    std::string line;
    for (const std::string& word : arguments) line += " " + word;
    SCOPED_TRACE(line);
    const Answer answer = library(one);
    EXPECT_EQ(answer.refusal.empty(), one.refusal.empty()) << answer.refusal;
    EXPECT_THAT(answer.refusal, HasSubstr(one.refusal));
    if (!answer.refusal.empty()) return refuses(failed, arguments, {answer.refusal});
    succeed(arguments);
    const Safetensors file = Safetensors::read(out_);
    EXPECT_EQ(file.names().size(), answer.tensors.size());
    for (const auto& [name, expected] : answer.tensors) {
      ASSERT_TRUE(file.contains(name)) << name;
      const Tensor found = file.tensor(name);
      ASSERT_EQ(found.dtype(), expected.dtype()) << name;
      ASSERT_EQ(found.shape(), expected.shape()) << name;
      EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), expected.bytes()), 0) << name;
    }
    EXPECT_EQ(file.metadata().at("mask"), one.mask.name());
  }

  void refuses_options(const Strings& options, const Strings& words, int status = usage) {
    refuses(status, joined({"attend", in_.string(), "--out", out_}, options), words);
  }

  TemporaryFolder folder_;
  std::filesystem::path in_ = folder_ / "in.safetensors";
  std::string out_ = (folder_ / "out.safetensors").string();
  std::vector<std::int64_t> begin_, end_;
  Tensor visible_ = Tensor::of<std::uint8_t>({1, length, length});
  std::vector<Tensor> tensors_;
};

TEST_F(AttendMasks, GiveTheBitsOfTheLibraryInEitherType) {
  std::vector<Case> cases = {
      {{"--mask", "full", "--key-lengths", "37,20"}, Mask::full().with_key_lengths({37, 20})},
      {{"--mask", "causal", "--segments", "0,7,8,37"}, Mask::causal().with_segments({0, 7, 8, 37})},
      {{"--mask", "prefix", "--prefix", "4,30"}, Mask::prefix({4, 30})},
      {{"--mask", "prefix", "--prefix", "9"}, Mask::prefix({9})},
      {{"--mask", "window", "--window", "4,1", "--segments", "0,20,37", "--key-lengths", "33,37"},
       Mask::window(4, 1).with_segments({0, 20, 37}).with_key_lengths({33, 37})},
      {{"--mask", "intervals"}, Mask::intervals(begin_, end_)},
      {{"--mask", "boolean"}, Mask::boolean(std::as_const(visible_).view<std::uint8_t>())}};
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string in = write(type);
    for (const Family family : {Family::linear, Family::softmax}) {
      for (Case& one : cases) {
        one.family = family;
        expect_library(in, one);
      }
    }
  }
}

TEST_F(AttendMasks, DecayOfTheOptionGivesTheBitsOfTheLibrary) {
  const std::string in = write(DType::f32);
  expect_library(in, {{"--mask", "causal", "--decay", "0.9,0.99,1"}, Mask::causal(), {0.9f, 0.99f, 1.0f}});
  expect_library(in, {{"--mask", "causal", "--decay", "0.5"}, Mask::causal(), {0.5f, 0.5f, 0.5f}});
  expect_library(in, {{"--mask", "full", "--decay", "0.5"},
                      Mask::full(),
                      {0.5f, 0.5f, 0.5f},
                      Family::linear,
                      "expected a causal mask with a decay, got the mask full"});
}

TEST_F(AttendMasks, DecayOfTheFileIsUsedUnlessTheOptionIsGiven) {
  write(DType::f32);
  const std::vector<float> decay = {0.8f, 0.9f, 1.0f};
  std::vector<NamedTensor> named = {{"decay", DType::f32, {heads}, decay.data()}};
  const char* names[] = {"q", "k", "v", "grad_out"};
  for (int i = 0; i < 4; ++i) named.push_back({names[i], DType::f32, tensors_[i].shape(), tensors_[i].raw()});
  write_safetensors(in_, named, {});
  expect_library(in_.string(), {{"--mask", "causal"}, Mask::causal(), decay});
  expect_library(in_.string(), {{"--mask", "causal", "--decay", "0.5"}, Mask::causal(), {0.5f, 0.5f, 0.5f}});
}

TEST_F(AttendMasks, OptionsAndMasksThatDoNotBelongTogetherAreRefused) {
  write(DType::f32);
  refuses_options({"--prefix", "4"}, {"--prefix", "--mask prefix", "full"});
  refuses_options({"--mask", "causal", "--window", "4,0"}, {"--window", "--mask window", "causal"});
  refuses_options({"--mask", "prefix"}, {"--prefix", "none"});
  refuses_options({"--mask", "window"}, {"--window", "none"});
  refuses_options({"--mask", "window", "--window", "4"}, {"--window", "two", "1"});
  refuses_options({"--mask", "window", "--window", "4,-1"}, {"--window", "-1"});
  refuses_options({"--mask", "windows", "--window", "4,1"}, {"--mask", "windows"});
  refuses_options({"--decay", "0"}, {"--decay", "0"});
  refuses_options({"--decay", "1.01"}, {"--decay", "1.01"});
  refuses_options({"--decay", "nan"}, {"--decay", "nan"});
  refuses_options({"--mask", "causal", "--decay", "0.9,0.8"}, {"--decay", "3", "2"});
  // What fits the options, but not the numbers in the file.
  refuses_options({"--mask", "prefix", "--prefix", "38"}, {"prefix length", "37", "38"}, failed);
  refuses_options({"--segments", "0,40"}, {"segment", "37", "40"}, failed);
  refuses_options({"--segments", "0,20,20,37"}, {"segments", "20"}, failed);
}

TEST_F(AttendMasks, TensorsThatMasksLackOrCannotUseAreRefused) {
  write(DType::f32);
  const std::vector<float> decay = {0.8f, 0.9f};
  std::vector<NamedTensor> named;
  const char* names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) named.push_back({names[i], DType::f32, tensors_[i].shape(), tensors_[i].raw()});
  const auto with = [&](std::vector<NamedTensor> more) {
    more.insert(more.end(), named.begin(), named.end());
    write_safetensors(in_, more, {});
  };
  with({});
  refuses_options({"--mask", "intervals"}, {"begin", "in.safetensors", "none"}, failed);
  refuses_options({"--mask", "boolean"}, {"mask", "in.safetensors", "none"}, failed);
  with({{"begin", DType::i64, {length}, begin_.data()}});
  refuses_options({"--mask", "intervals"}, {"end", "none"}, failed);
  with({{"begin", DType::i64, {length}, begin_.data()}, {"end", DType::i64, {length - 1}, end_.data()}});
  refuses_options({"--mask", "intervals"}, {"37", "36"}, failed);
  with({{"begin", DType::f32, {heads}, tensors_[0].raw()}});
  refuses_options({"--mask", "intervals"}, {"begin", "i64 or i32", "f32 [3]"}, failed);
  with({{"begin", DType::i64, {length}, end_.data()}, {"end", DType::i64, {1, length}, end_.data()}});
  refuses_options({"--mask", "intervals"}, {"end", "[1, 37]"}, failed);
  with({{"mask", DType::u8, {length, length}, visible_.raw()}});
  refuses_options({"--mask", "boolean"}, {"mask", "u8 [batch or 1, queries, keys]", "[37, 37]"}, failed);
  with({{"mask", DType::u8, {1, length, length - 1}, visible_.raw()}});
  refuses_options({"--mask", "boolean"}, {"boolean mask", "[1, 37, 36]"}, failed);
  with({{"decay", DType::f32, {2}, decay.data()}});
  refuses_options({"--mask", "causal"}, {"decay", "f32 [3]", "f32 [2]"}, failed);
}

TEST_F(AttendMasks, InputsOfTwoTypesAreRefused) {
  write(DType::f32);
  const Tensor narrow(DType::bf16, tensors_[1].shape());
  const std::vector<NamedTensor> named = {{"q", DType::f32, tensors_[0].shape(), tensors_[0].raw()},
                                          {"k", DType::bf16, narrow.shape(), narrow.raw()},
                                          {"v", DType::f32, tensors_[2].shape(), tensors_[2].raw()}};
  write_safetensors(in_, named, {});
  refuses_options({}, {"key", "f32", "bf16"}, failed);
}

}  // namespace
}  // namespace linnet
