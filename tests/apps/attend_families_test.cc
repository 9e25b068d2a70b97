// `attend` with the options of every family does what the library does with the same options: the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "apps/bench_rows.h"
#include "apps/refusal.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "linnet/attention.h"
#include "support/contexts.h"

namespace linnet {
namespace {

using testing::UnorderedElementsAreArray;

constexpr std::int64_t batch = 2, length = 37, heads = 3, rank = 5;

class AttendFamilies : public testing::Test {
 protected:
  AttendFamilies() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (const Shape& shape :
         {Shape{batch, length, heads, 8}, Shape{batch, length, heads, 8}, Shape{batch, length, heads, 5},
          Shape{batch, length, heads, 5}, Shape{heads, rank, length}, Shape{1, rank, length + 3}}) {
      tensors_.push_back(Tensor::of<float>(shape));
      for (float& number : tensors_.back().span<float>()) number = normal(random);
    }
  }

  using Names = std::vector<std::pair<const char*, int>>;

  /// The file of those names, each one of the tensors.
  std::string write(const Names& names) {
    std::vector<NamedTensor> named;
    for (const auto& [name, index] : names) {
      const Tensor& tensor = tensors_[static_cast<std::size_t>(index)];
      named.push_back({name, DType::f32, tensor.shape(), tensor.raw()});
    }
    write_safetensors(in_, named, {});
    return in_;
  }

  /// q, k, v and grad_out, and with them the projections.
  static Names plain() { return {{"q", 0}, {"k", 1}, {"v", 2}, {"grad_out", 3}}; }
  static Names projected() {
    Names names = plain();
    names.insert(names.end(), {{"key_projection", 4}, {"value_projection", 5}});
    return names;
  }

  void expect_library(const Strings& words, const AttentionOptions& options, const Mask& mask,
                      const std::string& in) {
    std::string line;
    for (const std::string& word : words) line += " " + word;
    SCOPED_TRACE(line);
    const bool linformer = options.family == Family::linformer, lsh = options.family == Family::lsh;
    const auto view = [&](int index) {
      return std::as_const(tensors_[static_cast<std::size_t>(index)]).view<float>();
    };
    AttentionInputs inputs{view(0), view(lsh ? 0 : 1), view(2), mask};
    Tensor out = Tensor::of<float>(tensors_[2].shape()),
           normaliser = Tensor::of<float>({batch, length, heads});
    Tensor dq = Tensor::of<float>(tensors_[0].shape()), dk = Tensor::of<float>(tensors_[0].shape()),
           dv = Tensor::of<float>(tensors_[2].shape());
    Tensor dkey_projection = Tensor::of<float>(tensors_[4].shape()),
           dvalue_projection = Tensor::of<float>(tensors_[5].shape());
    AttentionGradients gradients{dq.float_view(), dk.float_view(), dv.float_view()};
    std::vector<std::pair<const char*, const Tensor*>> expected = {
        {"out", &out}, {"dq", &dq}, {"dk", &dk}, {"dv", &dv}};
    if (linformer) {
      inputs.key_projection = view(4);
      inputs.value_projection = view(5);
      gradients.key_projection = dkey_projection.view<float>();
      gradients.value_projection = dvalue_projection.view<float>();
      expected.push_back({"dkey_projection", &dkey_projection});
      expected.push_back({"dvalue_projection", &dvalue_projection});
    }
    const auto attention = make_attention(options);
    attention->forward(any_context(), {out.float_view(), normaliser.view<float>()}, inputs);
    attention->backward(any_context(), gradients, view(3), inputs, std::as_const(out).float_view(),
                        std::as_const(normaliser).view<float>());
    succeed(joined({"attend", in, "--out", out_, "--gradients", "--family", name_of(options.family)}, words));
    const Safetensors file = Safetensors::read(out_);
    EXPECT_EQ(file.names().size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      ASSERT_TRUE(file.contains(name)) << name;
      const Tensor found = file.tensor(name);
      ASSERT_EQ(found.shape(), tensor->shape()) << name;
      EXPECT_EQ(std::memcmp(found.raw(), tensor->raw(), tensor->bytes()), 0) << name;
    }
  }

  void refuses_options(const Strings& options, const Strings& words, int status = usage) {
    refuses(status, joined({"attend", in_, "--out", out_}, options), words);
  }

  TemporaryFolder folder_;
  std::string in_ = (folder_ / "in.safetensors").string(), out_ = (folder_ / "out.safetensors").string();
  std::vector<Tensor> tensors_;
};

TEST_F(AttendFamilies, LinearTakesItsRandomFeatures) {
  const std::string in = write(plain());
  AttentionOptions options;
  const RandomFeatureOptions random = {.features = 24, .directions = Directions::independent, .seed = 5};
  options.linear.feature_map = random_feature_map("favor", 8, random);
  expect_library({"--feature-map", "favor", "--features", "24", "--directions", "independent", "--seed", "5"},
                 options, Mask::full(), in);
  options.linear.feature_map =
      random_feature_map("favor", 8, {.features = 20, .directions = Directions::hadamard});
  expect_library({"--feature-map", "favor", "--features", "20", "--directions", "hadamard"}, options,
                 Mask::full(), in);
  options.linear.feature_map = random_feature_map("favor", 8);
  expect_library({"--feature-map", "favor", "--mask", "causal"}, options, Mask::causal(), in);
  refuses_options({"--family", "softmax", "--features", "24"}, {"--family linear", "--features", "softmax"});
  refuses_options({"--feature-map", "favour"}, {"favour", "did you mean favor?"});
}

TEST_F(AttendFamilies, RefuseOptionsOfOthers) {
  write(plain());
  for (const Strings& of_linear :
       {Strings{"--feature-map", "relu"}, {"--alpha", "0.5"}, {"--epsilon", "0.1"}})
    refuses_options(joined({"--family", "softmax"}, of_linear), {"--family linear", of_linear[0], "softmax"});
  refuses_options({"--family", "local", "--normalise", "none"}, {"linear or kernel", "--normalise"});
  for (const char* family : {"linear", "kernel"})
    refuses_options({"--family", family, "--scale", "3"}, {"softmax or linformer", "--scale"});
  refuses_options({"--feature-map", "elu", "--features", "64"}, {"random feature map", "--features", "elu"});
  refuses_options({"--feature-map", "relu", "--directions", "hadamard"},
                  {"random feature map", "--directions", "relu"});
  refuses_options({"--feature-map", "relu", "--alpha", "0.5"}, {"--feature-map elu", "--alpha", "relu"});
}

TEST_F(AttendFamilies, KernelTakesItsSimilarity) {
  const std::string in = write(plain());
  AttentionOptions options;
  options.family = Family::kernel;
  expect_library({}, options, Mask::full(), in);
  options.kernel.similarity = polynomial_similarity(0.5, 4);
  expect_library({"--similarity", "polynomial", "--offset", "0.5", "--power", "4"}, options, Mask::full(),
                 in);
  options.kernel.similarity = gaussian_similarity(2);
  options.kernel.normalise = Normalise::none;
  expect_library({"--similarity", "gaussian", "--sigma", "2", "--normalise", "none", "--mask", "causal"},
                 options, Mask::causal(), in);
}

TEST_F(AttendFamilies, LocalTakesItsWindowBesideTheMasks) {
  const std::string in = write(plain());
  AttentionOptions options;
  options.family = Family::local;
  options.local.left = 4;
  expect_library({"--local-window", "4", "--mask", "causal"}, options, Mask::causal(), in);
  options.local.right = 2;
  options.scale = 0.5f;
  expect_library({"--local-window", "4,2", "--mask", "window", "--window", "3,9", "--scale", "0.5",
                  "--key-lengths", "37,20"},
                 options, Mask::window(3, 9).with_key_lengths({37, 20}), in);
}

TEST_F(AttendFamilies, StridedTakesItsPattern) {
  const std::string in = write(plain());
  AttentionOptions options;
  options.family = Family::strided;
  expect_library({"--mask", "causal"}, options, Mask::causal(), in);
  options.strided.stride = 6;
  expect_library({"--mask", "causal", "--stride", "6"}, options, Mask::causal(), in);
  options.strided.pattern = SparsePattern::fixed;
  options.strided.summary = 2;
  expect_library({"--mask", "causal", "--stride", "6", "--pattern", "fixed", "--summary", "2"}, options,
                 Mask::causal(), in);
}

TEST_F(AttendFamilies, LshTakesItsHashesAndQueriesForKeys) {
  AttentionOptions options;
  options.family = Family::lsh;
  options.lsh = {.buckets = 4, .chunk = 5, .rounds = 2, .seed = 9};
  const Strings words = {"--buckets", "4", "--chunk", "5", "--rounds", "2", "--seed", "9"};
  for (const Names& names :
       {Names{{"q", 0}, {"v", 2}, {"grad_out", 3}}, Names{{"q", 0}, {"k", 0}, {"v", 2}, {"grad_out", 3}}}) {
    const std::string in = write(names);
    expect_library(words, options, Mask::full(), in);
    expect_library(joined(words, {"--mask", "causal"}), options, Mask::causal(), in);
  }
  write(plain());
  refuses_options({"--family", "lsh"}, {"k in", "equal to q", "lsh"}, failed);
}

TEST_F(AttendFamilies, LshIsComparedOverKeysOfUnitLength) {
  // One chunk of one bucket holds all, so that only the token itself is missing: little among many.
  const std::string in = write({{"q", 0}, {"v", 2}});
  const Json all = json_of(succeed({"attend", in, "--out", out_, "--family", "lsh", "--buckets", "1",
                                    "--chunk", "64", "--compare", "softmax", "--json"}));
  EXPECT_LT(all["compare"]["relative_error"].get<double>(), 0.5);
  const Json itself = json_of(
      succeed({"attend", in, "--out", out_, "--family", "lsh", "--seed", "1", "--compare", "lsh", "--json"}));
  EXPECT_EQ(itself["compare"]["relative_error"], 0);
  refuses_options({"--compare", "lsh"}, {"--family lsh", "--compare lsh", "linear"});
}

TEST_F(AttendFamilies, LinformerTakesTheProjectionsOfTheFile) {
  AttentionOptions options;
  options.family = Family::linformer;
  const std::string in = write(projected());
  expect_library({}, options, Mask::full(), in);
  expect_library({"--rank", "5", "--key-lengths", "30,37"}, options, Mask::full().with_key_lengths({30, 37}),
                 in);
  refuses_options({"--family", "linformer", "--rank", "6"}, {"--rank 5", "6"});
}

TEST_F(AttendFamilies, LinformerDrawsProjectionsThatItLeavesInTheOutput) {
  const std::string in = write(plain());
  const auto draw = [&](const std::string& seed) {
    succeed({"attend", in, "--out", out_, "--family", "linformer", "--rank", "5", "--seed", seed});
    return Safetensors::read(out_);
  };
  const Safetensors first = draw("4"), other = draw("5");
  EXPECT_THAT(first.names(), UnorderedElementsAreArray({"out", "key_projection", "value_projection"}));
  const Tensor out = first.tensor("out");
  EXPECT_NE(std::memcmp(out.raw(), other.tensor("out").raw(), out.bytes()), 0);
  tensors_[4] = first.tensor("key_projection");
  tensors_[5] = first.tensor("value_projection");
  ASSERT_EQ(tensors_[4].shape(), (Shape{heads, 5, length}));
  AttentionOptions options;
  options.family = Family::linformer;
  expect_library({}, options, Mask::full(), write(projected()));
  EXPECT_EQ(std::memcmp(out.raw(), Safetensors::read(out_).tensor("out").raw(), out.bytes()), 0);
}

TEST_F(AttendFamilies, WhatAFamilyCannotDoIsRefused) {
  write(plain());
  refuses_options({"--family", "linformer", "--rank", "38"}, {"--rank", "37", "38"});
  refuses_options({"--family", "linformer", "--rank", "0"}, {"--rank", "0"});
  refuses_options({"--family", "linformer", "--rank", "4", "--mask", "causal"},
                  {"linformer", "full", "causal"}, failed);
  refuses_options({"--family", "strided"}, {"strided", "causal", "full"}, failed);
  refuses_options({"--family", "lsh", "--buckets", "3"}, {"even", "3"});
  refuses_options({"--family", "lsh", "--chunk", "0"}, {"--chunk", "0"});
  refuses_options({"--family", "lsh", "--rounds", "65"}, {"64", "65"});
  refuses_options({"--family", "kernel", "--similarity", "gausian"}, {"gausian", "did you mean gaussian?"});
  refuses_options({"--family", "kernel", "--similarity", "polynomial", "--power", "3"}, {"even", "3"});
  refuses_options({"--family", "kernel", "--power", "4"},
                  {"--similarity polynomial", "--power", "exponential"});
  refuses_options({"--family", "strided", "--summary", "4"}, {"--pattern fixed", "--summary", "strided"});
  refuses_options({"--family", "strided", "--pattern", "fixed", "--stride", "4", "--summary", "5"},
                  {"--summary", "--stride 4", "5"});
  refuses_options({"--family", "local", "--local-window", "1,2,3"}, {"--local-window", "3"});
  refuses_options({"--rank", "4"}, {"--family linformer", "--rank", "linear"});
  refuses_options({"--family", "softmax", "--seed", "4"},
                  {"--family linear or linformer or lsh", "--seed", "softmax"});
  refuses_options({"--family", "stridded"}, {"stridded", "did you mean strided?"});
}

TEST_F(AttendFamilies, ProjectionsThatCannotBeAreRefused) {
  Names names = plain();
  names.push_back({"key_projection", 4});
  write(names);
  refuses_options({"--family", "linformer"}, {"value_projection", "in.safetensors"}, failed);
  names.push_back({"value_projection", 0});
  write(names);
  refuses_options({"--family", "linformer"},
                  {"value_projection", "f32 [heads or 1, rank, length]", "[2, 37, 3, 8]"}, failed);
}

}  // namespace
}  // namespace linnet
