#include "training/masking.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "linnet/error.h"
#include "support/contexts.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/numbers.h"
#include "support/runs.h"
#include "training/config.h"
#include "training/examples.h"

namespace linnet {
namespace {

constexpr std::int32_t mask = 40;
constexpr std::int64_t sizes[] = {mask};

struct Hidden {
  std::vector<std::int32_t> before, tokens, targets;

  std::vector<std::size_t> positions() const {
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < targets.size(); ++i)
      if (targets[i] >= 0) result.push_back(i);
    return result;
  }
};

Hidden hidden(const std::vector<std::int32_t>& before, std::uint64_t example, std::uint64_t seed = 5,
              std::uint32_t stream = 0) {
  Hidden result{before, before, before};
  hide_tokens(result.tokens, result.targets, sizes, Random(seed, Draw::masking, stream),
              example * before.size());
  return result;
}

/// Of tokens that are others in every example.
Hidden hidden(std::int64_t length, std::uint64_t example) {
  return hidden(random_tokens(length, mask, 5 + example), example);
}

TEST(HideTokens, HidesThePublishedShares) {
  double chosen = 0, masked = 0, other = 0, all = 0;
  for (std::uint64_t example = 0; example < 100; ++example) {
    const Hidden h = hidden(1000, example);
    for (std::size_t i = 0; i < h.tokens.size(); ++i) {
      ++all;
      if (h.targets[i] < 0) {
        ASSERT_EQ(h.targets[i], -1);
        ASSERT_EQ(h.tokens[i], h.before[i]);
        continue;
      }
      ++chosen;
      ASSERT_EQ(h.targets[i], h.before[i]);
      masked += h.tokens[i] == mask;
      other += h.tokens[i] != mask && h.tokens[i] != h.before[i];
    }
  }
  const auto expect_share = [](double count, double of, double share) {
    EXPECT_NEAR(count / of, share, 5 * std::sqrt(share * (1 - share) / of));  // five deviations
  };
  expect_share(chosen, all, 0.15);
  expect_share(masked, chosen, 0.8);
  expect_share(other, chosen, 0.1 * (mask - 1) / mask);  // a random token may be the old one
}

TEST(HideTokens, ChoosesAtLeastOneOfThoseThatCount) {
  for (std::uint64_t example = 0; example < 200; ++example) {
    const Hidden one = hidden(1, example), three = hidden(3, example);
    EXPECT_EQ(one.targets, one.before);
    EXPECT_GE(std::ranges::count_if(three.targets, [](std::int32_t t) { return t >= 0; }), 1);
    std::vector<std::int32_t> tokens = {1, 2, 3, 4}, targets = {-1, -1, 3, -1};
    hide_tokens(tokens, targets, sizes, Random(1, Draw::masking), 4 * example);
    EXPECT_EQ(targets, (std::vector<std::int32_t>{-1, -1, 3, -1}));
    tokens[2] = 3;
    EXPECT_EQ(tokens, (std::vector<std::int32_t>{1, 2, 3, 4}));
    targets = {-1, -1, -1, -1};
    hide_tokens(tokens, targets, sizes, Random(1, Draw::masking), 4 * example);
    EXPECT_EQ(tokens, (std::vector<std::int32_t>{1, 2, 3, 4}));
  }
}

TEST(HideTokens, DependsOnSeedStreamAndExampleAlone) {
  const auto tokens = random_tokens(100, mask, 1), others = random_tokens(100, mask, 2);
  const Hidden first = hidden(tokens, 3);
  EXPECT_EQ(hidden(tokens, 3).tokens, first.tokens);
  EXPECT_EQ(hidden(others, 3).positions(), first.positions());
  EXPECT_NE(hidden(tokens, 4).positions(), first.positions());
  EXPECT_NE(hidden(tokens, 3, 6).positions(), first.positions());
  EXPECT_NE(hidden(tokens, 3, 5, 1).positions(), first.positions());
}

/// Sequences of 1 … length tokens, token 1 first.
class Uneven final : public Dataset {
 public:
  explicit Uneven(std::int64_t length) : length_(length) {}
  std::int64_t size() const override { return length_; }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return 5; }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    for (std::int64_t i = 0; i < length_; ++i) {
      tokens[static_cast<std::size_t>(i)] = i <= index ? 1 + static_cast<std::int32_t>(i % 4) : -1;
      targets[static_cast<std::size_t>(i)] = tokens[static_cast<std::size_t>(i)];
    }
    return -1;
  }

 private:
  std::int64_t length_;
};

TEST(Examples, KeepThePaddingOfShortOnesApart) {
  const Uneven set(6);
  const auto itself = [](std::int64_t i) { return i; };
  for (const Objective objective : {Objective::next_token, Objective::masked}) {
    ModelConfig config = tiny_config();
    config.objective = objective;
    Examples examples;
    const Batch batch =
        examples.read(any_context(), set, config, 6, itself, {Random(1, Draw::masking), itself});
    EXPECT_EQ(std::vector(batch.key_lengths.begin(), batch.key_lengths.end()),
              (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
    const Batch part = part_of(batch, 2, 5);
    EXPECT_EQ(part.key_lengths.size(), 3u);
    EXPECT_EQ(part.key_lengths[0], 3);
    EXPECT_EQ(part.inputs.data(), batch.inputs.data() + 12);
    EXPECT_EQ(part.targets.size(), 18u);
    for (std::size_t i = 0; i < 36; ++i) {
      EXPECT_GE(batch.inputs[i], 0);
      EXPECT_LT(batch.inputs[i], config.input_tokens());
      if (i % 6 > i / 6) {
        EXPECT_EQ(batch.targets[i], -1);
      }
    }
    EXPECT_EQ(counted_targets(batch) == 21, !config.masked());
    const Batch whole = examples.read(any_context(), set, config, 1, [](std::int64_t) { return 5; },
                                      {Random(1, Draw::masking), itself});
    EXPECT_TRUE(whole.key_lengths.empty());
    EXPECT_TRUE(part_of(whole, 0, 1).key_lengths.empty());
  }
}

TEST(Examples, PackedOnesHaveTheLossOfThePaddedOnes) {
  const Uneven padded(6);
  const auto packed = pack_examples(std::make_unique<Uneven>(6));
  EXPECT_EQ(packed->size(), 4);  // 6, 5 + 1, 4 + 2, 3
  for (const char* family : {"linear", "softmax", "local", "kernel"}) {
    ModelConfig config = tiny_config();
    config.attention.family = find_family(family);
    const auto model = random_model(config, 3);
    const Evaluation expected = evaluate(any_context(), *model, padded, 0, 4);
    for (const std::int64_t batch : {1, 3}) {
      const Evaluation actual = evaluate(any_context(), *model, *packed, 0, batch);
      EXPECT_EQ(actual.tokens, 21);
      EXPECT_EQ(actual.tokens, expected.tokens);
      EXPECT_NEAR(actual.bits, expected.bits, 1e-6) << family;
    }
  }
}

TEST(Examples, PackedOnesOfAMaskedModelHideATokenOfEverySequence) {
  const auto packed = pack_examples(std::make_unique<Uneven>(6));
  const auto itself = [](std::int64_t i) { return i; };
  ModelConfig config = tiny_config();
  config.objective = Objective::masked;
  Examples examples;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Batch batch =
        examples.read(any_context(), *packed, config, 4, itself, {Random(seed, Draw::masking), itself});
    ASSERT_EQ(batch.positions.size(), 24u);
    std::int64_t hidden = 1, sequences = 0;
    for (std::int64_t i = 0; i < 24; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (batch.positions[at] == 0) {
        EXPECT_GT(hidden, 0) << "seed " << seed;
        hidden = 0;
        ++sequences;
      }
      hidden += batch.targets[at] >= 0;
    }
    EXPECT_GT(hidden, 0);
    EXPECT_EQ(sequences, 6);
  }
}

TEST(Examples, PackedOnesAreRefusedWhereAttentionOrHeadTakeWholeExamples) {
  const auto packed = pack_examples(std::make_unique<Uneven>(6));
  for (const char* family : {"lsh", "linformer", "strided"}) {
    ModelConfig config = tiny_config();
    config.attention.family = find_family(family);
    if (config.attention.family == Family::linformer) {
      config.objective = Objective::masked;
      config.attention.linformer.rank = 3;
    }
    const std::string said = error_of<UsageError>([&] { check_fit(config, *packed); });
    EXPECT_NE(said.find(std::string("data.packing), got ") + family), std::string::npos) << said;
  }
  ModelConfig classifier = tiny_config();
  classifier.objective = Objective::classify;
  classifier.classes = 2;
  std::vector<std::int32_t> inputs(6), labels(1), positions = {0, 1, 0, 1, 2, 3};
  Batch batch{1, 6, inputs, {}};
  batch.labels = labels;
  batch.positions = positions;
  EXPECT_NE(error_of<UsageError>([&] { check_batch("step", classifier, batch); }).find("one sequence per"),
            std::string::npos);
  const ModelConfig config = tiny_config();
  batch = {1, 6, inputs, inputs};
  positions[3] = 2;
  batch.positions = positions;
  EXPECT_NE(error_of<UsageError>([&] {
              check_batch("step", config, batch);
            }).find("position 0 or 1 in step 3, got 2"),
            std::string::npos);
}

TEST(HideTokens, ChoosesTheFieldsOfAStepIndependently) {
  constexpr std::int64_t sizes_of_two[] = {30, 7};
  std::int64_t both = 0, first = 0, second = 0, steps = 0;
  for (std::uint64_t example = 0; example < 100; ++example) {
    std::vector<std::int32_t> tokens(400), targets(400);
    for (std::size_t i = 0; i < 400; ++i)
      targets[i] = tokens[i] = static_cast<std::int32_t>(i % 2 == 0 ? 29 : 6);
    hide_tokens(tokens, targets, sizes_of_two, Random(2, Draw::masking), 400 * example);
    for (std::size_t i = 0; i < 400; i += 2, ++steps) {
      first += targets[i] >= 0;
      second += targets[i + 1] >= 0;
      both += targets[i] >= 0 && targets[i + 1] >= 0;
      EXPECT_TRUE(tokens[i] >= 0 && tokens[i] <= 30);
      EXPECT_TRUE(tokens[i + 1] >= 0 && tokens[i + 1] <= 7);
    }
  }
  const auto expect_share = [&](std::int64_t count, double share) {
    const double of = static_cast<double>(steps);
    EXPECT_NEAR(static_cast<double>(count) / of, share, 5 * std::sqrt(share * (1 - share) / of));
  };
  expect_share(first, 0.15);
  expect_share(second, 0.15);
  expect_share(both, 0.15 * 0.15);
}

TEST(TransposeTokens, ShiftsAllButRestsByOneNumberThatFits) {
  constexpr std::int64_t sizes_of_two[] = {12, 8};
  std::vector<int> times(21);
  for (std::uint64_t draw = 0; draw < 2000; ++draw) {
    const std::vector<std::int32_t> before = {3, 4, 0, 0, 5, 4, 9, 0};
    std::vector<std::int32_t> tokens = before, targets = before;
    targets[0] = -1;
    transpose_tokens(tokens, targets, sizes_of_two, 10, Random(4, Draw::masking), draw);
    const std::int32_t shift = tokens[0] - before[0];
    ASSERT_TRUE(shift >= -2 && shift <= 2) << shift;  // 3 goes down to 1, 9 up to 11
    ++times[static_cast<std::size_t>(shift + 10)];
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(tokens[i], before[i] == 0 ? 0 : before[i] + shift);
      EXPECT_EQ(targets[i], i == 0 ? -1 : tokens[i]);
    }
  }
  for (std::size_t shift = 8; shift <= 12; ++shift) EXPECT_NEAR(times[shift], 400, 90);  // five deviations
  std::vector<std::int32_t> rests = {0, 0}, targets = rests;
  transpose_tokens(rests, targets, sizes_of_two, 10, Random(4, Draw::masking), 1);
  EXPECT_EQ(rests, targets);
  EXPECT_EQ(rests, (std::vector<std::int32_t>{0, 0}));
}

TEST(HeadWeights, ListsThatDoNotFitTheHeadsAreRefused) {
  ModelConfig config = tiny_config();
  TrainingOptions options;
  const auto said = [&](const char* list) {
    options.head_weights = list;
    return error_of<UsageError>([&] { head_weights(options, config); });
  };
  EXPECT_NE(said("1").find("one output head"), std::string::npos);
  config.fields = "5,3";
  for (const char* list : {"1", "1,2,3", "1,-2", "1,x", "0,0", "1,", "nan,1"})
    EXPECT_NE(said(list).find("2 numbers in 0"), std::string::npos) << list;
  options.head_weights = "1, 0.5";
  EXPECT_EQ(head_weights(options, config), (std::vector<float>{1, 0.5f}));
  options.head_weights = "";
  EXPECT_TRUE(head_weights(options, config).empty());
}

ModelConfig masked_config(Family family) {
  ModelConfig config = trained_config();
  config.objective = Objective::masked;
  config.attention.family = family;
  config.attention.linformer.rank = 3;
  config.attention.local.window = 2;
  return config;
}

TEST(MaskedTraining, LossFallsAndAccuracyRises) {
  const Counting set(400, 12, 5), held_out(40, 12, 5);
  for (const Family family : {Family::linear, Family::softmax, Family::linformer, Family::lsh}) {
    SCOPED_TRACE(name_of(family));
    ModelConfig config = masked_config(family);
    config.dropout = 0;
    config.length = 12;
    config.attention.linformer.rank = 12;
    config.width = 24;
    config.feed_forward = 48;
    TrainingOptions options = tiny_options();
    options.steps = 150;
    options.batch = 16;
    options.accumulate = 1;
    options.evaluate_every = 150;
    options.evaluate_examples = 0;
    Folder folder;
    train(any_context(), config, options, set, held_out, folder.path(), false);
    const Json first = metrics_of(folder.path())[1], last = metrics_of(folder.path()).back();
    EXPECT_GT(first["bits"].get<double>(), 2);
    EXPECT_LT(last["validation_bits"].get<double>(), 0.85 * first["bits"].get<double>());
    EXPECT_GT(last["validation_accuracy"].get<double>(), 0.4);  // guesses: 0.2
    EXPECT_NEAR(last["validation_perplexity"].get<double>(), std::exp2(last["validation_bits"].get<double>()),
                1e-9);
    const Evaluation again = evaluate(any_context(), *Model::load(folder.path()), held_out, 0, 3, true);
    EXPECT_EQ(again.tokens, last["validation_tokens"].get<std::int64_t>()) << "other tokens are hidden";
    EXPECT_NEAR(again.bits, last["validation_bits"].get<double>(), 1e-6);
    EXPECT_EQ(again.accuracy, last["validation_accuracy"].get<double>());
  }
}

TEST(MaskedTraining, ResumesInTheSameBits) {
  const Uneven set(6);
  for (const Family family : {Family::linear, Family::lsh, Family::linformer}) {
    const ModelConfig config = masked_config(family);
    Folder whole("whole"), stopped("stopped");
    train(any_context(), config, tiny_options(), set, set, whole.path(), false);
    train(any_context(), config, tiny_options(), set, set, stopped.path(), false, stopping_after(6));
    {
      Context context(1);
      train(context, config, tiny_options(), set, set, stopped.path(), true);
    }
    EXPECT_EQ(weights_of(stopped.path()), weights_of(whole.path())) << name_of(family);
    const auto found = metrics_of(stopped.path()), expected = metrics_of(whole.path());
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      for (const char* key : {"bits", "validation_bits", "validation_accuracy"})
        EXPECT_EQ(found[i].value(key, -1.0), expected[i].value(key, -1.0)) << key;
  }
}

TEST(MaskedTraining, HidesOtherTokensInEveryUpdate) {
  // One example and a learning rate of 0: only what is hidden can make a difference.
  const Counting set(1, 6, 5);
  ModelConfig config = masked_config(Family::linear);
  config.dropout = 0;
  TrainingOptions options = tiny_options();
  options.learning_rate = 0;
  std::vector<double> bits;
  TrainingCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { bits.push_back(report.bits); };
  Folder folder;
  train(any_context(), config, options, set, set, folder.path(), false, callbacks);
  ASSERT_EQ(bits.size(), 12u);
  EXPECT_NE(bits[0], bits[1]);
  EXPECT_NE(bits[1], bits[2]);
}

}  // namespace
}  // namespace linnet
