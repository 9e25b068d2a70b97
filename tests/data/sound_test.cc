#include "data/sound.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "io/sound.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(MuLaw, HasTheValuesOfItsDefinition) {
  // f(x) = sign(x) ln(1 + 255 |x|) / ln(256), so that f(1 / 255) = 1 / 8 and f(1 / 17) = 1 / 2.
  EXPECT_EQ(mu_law_token(0, 256), 128);
  EXPECT_EQ(mu_law_token(1, 256), 255);
  EXPECT_EQ(mu_law_token(-1, 256), 0);
  EXPECT_EQ(mu_law_token(2, 256), 255);
  EXPECT_EQ(mu_law_token(-2, 256), 0);
  EXPECT_EQ(mu_law_token(1.0f / 255, 256), 143);  // ⌊127.5 · 9 / 8 + ½⌋
  EXPECT_EQ(mu_law_token(1.0f / 17, 256), 191);   // ⌊127.5 · 3 / 2 + ½⌋
  EXPECT_EQ(mu_law_token(-1.0f / 17, 256), 64);   // ⌊127.5 · 1 / 2 + ½⌋
  EXPECT_EQ(mu_law_token(0.5f, 2), 1);
  EXPECT_EQ(mu_law_token(-0.5f, 2), 0);
}

TEST(MuLaw, TokensStandForSamplesThatGiveThem) {
  for (const std::int64_t levels : {2, 3, 16, 255, 256}) {
    float before = -2;
    for (std::int32_t token = 0; token < levels; ++token) {
      const float sample = mu_law_sample(token, levels);
      EXPECT_EQ(mu_law_token(sample, levels), token) << levels;
      EXPECT_GT(sample, before);
      before = sample;
    }
    EXPECT_EQ(mu_law_sample(0, levels), -1);
    EXPECT_FLOAT_EQ(before, 1);
  }
}

#ifdef LINNET_SNDFILE

constexpr float step = 1.0f / 32768;

/// A sound whose sample at frame t and channel c is (from + t) / 32768 · (c == 0 ? 1 : −1).
std::string sound(const TemporaryFolder& folder, const std::string& name, int frames, int from = 0,
                  int channels = 1, int rate = 8000) {
  std::vector<float> samples;
  for (int t = from; t < from + frames; ++t)
    for (int c = 0; c < channels; ++c) samples.push_back((c == 0 ? step : -step) * static_cast<float>(t));
  write_sound(folder / name, samples, channels, rate);
  return (folder / name).string();
}

struct Example {
  std::vector<int> values, targets;  // in units of 1 / 32768; −1000 where the target does not count
};

Example example(const Dataset& dataset, std::int64_t index) {
  std::vector<float> values(static_cast<std::size_t>(dataset.length() * dataset.columns())),
      targets(static_cast<std::size_t>(dataset.length() * dataset.target_columns()));
  EXPECT_EQ(dataset.read(index, {}, {}), -1);
  dataset.read_values(index, values, targets);
  const auto rounded = [](const std::vector<float>& samples) {
    std::vector<int> result;
    for (const float sample : samples)
      result.push_back(std::isnan(sample) ? -1000 : static_cast<int>(std::lround(sample / step)));
    return result;
  };
  return {rounded(values), rounded(targets)};
}

TEST(SoundData, WindowsOfSamplesAreThoseByHand) {
  const TemporaryFolder folder;
  const Datasets data = open_datasets(
      {.kind = "sound", .path = sound(folder, "a.wav", 20, 0, 2), .length = 4, .split = "0.6,0.8"});
  for (const Dataset* part : {data.training.get(), data.validation.get(), data.test.get()}) {
    EXPECT_EQ(part->vocabulary(), 0);
    EXPECT_THAT(part->fields(), IsEmpty());
    EXPECT_EQ(part->columns(), 2);
    EXPECT_EQ(part->target_columns(), 2);
    EXPECT_FALSE(part->paired());
    EXPECT_THAT(part->column_statistics().mean,
                ElementsAre(DoubleNear(5.5 * step, 1e-9), DoubleNear(-5.5 * step, 1e-9)));
    EXPECT_THAT(part->target_statistics().deviation, Each(DoubleNear(std::sqrt(143.0 / 12) * step, 1e-9)));
  }
  ASSERT_EQ(data.training->size(), 9);
  EXPECT_THAT(example(*data.training, 8).values, ElementsAre(8, -8, 9, -9, 10, -10, 11, -11));
  EXPECT_EQ(example(*data.training, 8).targets, example(*data.training, 8).values);
  ASSERT_EQ(data.validation->size(), 2);
  EXPECT_THAT(example(*data.validation, 1).values, ElementsAre(12, -12, 13, -13, 14, -14, 15, -15));
  EXPECT_THAT(example(*data.validation, 1).targets,
              ElementsAre(-1000, -1000, -1000, -1000, 14, -14, 15, -15));
  EXPECT_EQ(data.test->size(), 2);
}

TEST(SoundData, CodesHaveAFieldForEachChannel) {
  const TemporaryFolder folder;
  const Datasets data = open_datasets({.kind = "sound",
                                       .path = sound(folder, "a.wav", 200, 0, 2),
                                       .length = 4,
                                       .levels = 64,
                                       .sound = "mu-law"});
  EXPECT_EQ(data.training->vocabulary(), 64);
  EXPECT_THAT(data.training->fields(), ElementsAre(64, 64));
  EXPECT_EQ(data.training->columns(), 0);
  EXPECT_THAT(data.training->column_statistics().mean, IsEmpty());
  std::vector<std::int32_t> tokens(8), targets(8), expected;
  EXPECT_EQ(data.validation->read(0, tokens, targets), -1);
  for (int t = 158; t < 162; ++t)
    for (const float sample : {step * static_cast<float>(t), -step * static_cast<float>(t)})
      expected.push_back(mu_law_token(sample, 64));
  EXPECT_EQ(tokens, expected);
  std::fill_n(expected.begin(), 4, -1);
  EXPECT_EQ(targets, expected);
}

TEST(SoundData, PairsAreFoundByNameOrElseByOrder) {
  const TemporaryFolder folder;
  const std::string a = sound(folder, "a.wav", 20), b = sound(folder, "b.wav", 20, 100);
  std::filesystem::create_directory(folder / "clean");
  const std::string clean_a = sound(folder, "clean/a.wav", 20, 500),
                    clean_b = sound(folder, "clean/b.wav", 20, 600),
                    other = sound(folder, "other.wav", 20, 700);
  for (const auto& [targets, of_a, of_b] :
       {std::tuple(clean_b + "," + clean_a, 500, 600), std::tuple(clean_b + "," + other, 600, 700)}) {
    const Datasets data = open_datasets(
        {.kind = "sound", .path = a + "," + b, .length = 3, .split = "0.6,0.8", .target = targets});
    EXPECT_TRUE(data.training->paired());
    EXPECT_EQ(data.training->size(), 20);
    EXPECT_THAT(example(*data.training, 9).values, ElementsAre(9, 10, 11));
    EXPECT_THAT(example(*data.training, 9).targets, ElementsAre(of_a + 9, of_a + 10, of_a + 11));
    EXPECT_THAT(example(*data.training, 10).values, ElementsAre(100, 101, 102));
    EXPECT_THAT(example(*data.training, 10).targets, ElementsAre(of_b, of_b + 1, of_b + 2));
    EXPECT_THAT(example(*data.validation, 0).targets, ElementsAre(-1000, -1000, of_a + 12));
    EXPECT_THAT(data.training->column_statistics().mean, ElementsAre(DoubleNear(55.5 * step, 1e-7)));
    EXPECT_THAT(data.training->target_statistics().mean,
                ElementsAre(DoubleNear(((of_a + of_b) / 2 + 5.5) * step, 1e-7)));
  }
}

TEST(SoundData, FilesOfTheirOwnForValidationAndTesting) {
  const TemporaryFolder folder;
  const std::string a = sound(folder, "a.wav", 20), b = sound(folder, "b.wav", 10, 100);
  const Datasets data = open_datasets({.kind = "sound", .path = a, .length = 4, .validation = b, .test = b});
  EXPECT_EQ(data.training->size(), 17);
  EXPECT_THAT(example(*data.validation, 0).targets, ElementsAre(100, 101, 102, 103));
  EXPECT_THAT(example(*data.test, 3).targets, ElementsAre(-1000, -1000, 108, 109));
}

TEST(SoundData, NamesBothFilesThatDiffer) {
  const TemporaryFolder folder;
  const std::string a = sound(folder, "a.wav", 20);
  const auto refusal = [&](const std::string& other) {
    const std::string listed =
        error_of([&] { open_datasets({.kind = "sound", .path = a + "," + other, .length = 4}); });
    EXPECT_THAT(listed, AllOf(HasSubstr("a.wav"), HasSubstr(other)));
    const std::string paired =
        error_of([&] { open_datasets({.kind = "sound", .path = a, .length = 4, .target = other}); });
    EXPECT_THAT(paired, AllOf(HasSubstr("a.wav"), HasSubstr(other)));
    EXPECT_EQ(listed, paired);
    return paired;
  };
  EXPECT_THAT(refusal(sound(folder, "rate.wav", 20, 0, 1, 16000)),
              AllOf(HasSubstr("one rate"), HasSubstr("8000"), HasSubstr("16000")));
  EXPECT_THAT(refusal(sound(folder, "stereo.wav", 20, 0, 2)),
              AllOf(HasSubstr("channels"), HasSubstr("got 1"), HasSubstr("and 2")));
  const std::string longer = sound(folder, "longer.wav", 21);
  EXPECT_THAT(
      error_of([&] { open_datasets({.kind = "sound", .path = a, .length = 4, .target = longer}); }),
      AllOf(HasSubstr("number of frames"), HasSubstr("20 of"), HasSubstr("21 of"), HasSubstr("longer.wav")));
  EXPECT_NO_THROW(open_datasets({.kind = "sound", .path = a + "," + longer, .length = 4}));
}

TEST(SoundData, RefusesFilesAndOptionsThatCannotBe) {
  const TemporaryFolder folder;
  const std::string a = sound(folder, "a.wav", 20), b = sound(folder, "b.wav", 20);
  const auto refusal = [&](DataOptions options) {
    options.kind = "sound";
    return error_of([&] { open_datasets(options); });
  };
  EXPECT_THAT(refusal({.length = 4}), HasSubstr("path"));
  EXPECT_THAT(refusal({.path = a}), HasSubstr("data.length of 2"));
  EXPECT_THAT(refusal({.path = a, .length = 4, .levels = 257, .sound = "mu-law"}), HasSubstr("levels"));
  EXPECT_THAT(refusal({.path = a, .length = 4, .sound = "a-law"}), HasSubstr("samples, mu-law"));
  EXPECT_THAT(refusal({.path = a, .length = 4, .sound = "mu-law", .target = a}),
              HasSubstr("\"samples\" for pairs"));
  EXPECT_THAT(refusal({.path = a, .length = 4, .validation = a, .target = a}),
              HasSubstr("data.split for pairs"));
  EXPECT_THAT(refusal({.path = a, .length = 4, .target = a + "," + b}), HasSubstr("data.path, 1, got 2"));
  EXPECT_THAT(refusal({.path = a, .length = 4, .split = "2016-07-01"}),
              AllOf(HasSubstr("fractions"), HasSubstr("data.split")));
  EXPECT_THAT(refusal({.path = a, .length = 21}), HasSubstr("data.length = 21 frames, got 20"));
  EXPECT_THAT(refusal({.path = a, .length = 17}), HasSubstr("data.length = 17 frames, got 16"));
  EXPECT_THAT(refusal({.path = folder / "none.wav", .length = 4}), HasSubstr("none.wav"));
}

#else

TEST(SoundData, IsRefusedWithoutItsLibrary) {
  EXPECT_THAT(error_of<UsageError>([] { open_datasets({.kind = "sound", .path = "a.wav", .length = 4}); }),
              HasSubstr("libsndfile"));
}

#endif

}  // namespace
}  // namespace linnet
