#include "data/sound.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "data/instruments.h"
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

/// The bytes of a WAV file of one channel of f32 (format 3).
std::string float_wav(const std::vector<float>& samples) {
  std::string bytes;
  const auto number = [&](std::uint32_t value, int count) {
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
  };
  const auto size = static_cast<std::uint32_t>(samples.size() * sizeof(float));
  bytes += "RIFF";
  number(36 + size, 4);
  bytes += "WAVEfmt ";
  for (const auto& [value, count] :
       {std::pair{16u, 4}, {3u, 2}, {1u, 2}, {8000u, 4}, {32000u, 4}, {4u, 2}, {32u, 2}})
    number(value, count);
  bytes += "data";
  number(size, 4);
  for (const float sample : samples) number(std::bit_cast<std::uint32_t>(sample), 4);
  return bytes;
}

TEST(SoundData, AConstantHasNoDeviation) {
  const TemporaryFolder folder;
  const auto path = folder.file("constant.wav", float_wav(std::vector<float>(50'000, 0.3f)));
  const auto data = open_dataset({.kind = "sound", .path = path, .length = 4}, Split::training);
  EXPECT_THAT(data->column_statistics().mean, ElementsAre(DoubleNear(0.3, 1e-7)));
  EXPECT_THAT(data->column_statistics().deviation, ElementsAre(0.0));
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
                    first = sound(folder, "first.wav", 20, 700), other = sound(folder, "other.wav", 20, 800);
  for (const auto& [targets, of_a, of_b] :
       {std::tuple(clean_b + "," + clean_a, 500, 600), std::tuple(other + "," + first, 800, 700)}) {
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

TEST(SoundData, FilesOfOneNameArePairedInTheirOrder) {
  const TemporaryFolder folder;
  for (const char* name : {"one", "two", "three", "four"}) std::filesystem::create_directory(folder / name);
  const std::string one = sound(folder, "one/a.wav", 20), two = sound(folder, "two/a.wav", 20, 100),
                    three = sound(folder, "three/a.wav", 20, 500),
                    four = sound(folder, "four/a.wav", 20, 600);
  const auto data = open_dataset({.kind = "sound",
                                  .path = one + "," + two,
                                  .length = 4,
                                  .validation = one,
                                  .target = four + "," + three,
                                  .validation_target = one},
                                 Split::training);
  EXPECT_THAT(example(*data, 0).targets, ElementsAre(600, 601, 602, 603));
  EXPECT_THAT(example(*data, 17).targets, ElementsAre(500, 501, 502, 503));
}

TEST(SoundData, RefusesPairsOfWhichSomeHaveTheSameName) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "clean");
  const std::string a = sound(folder, "a.wav", 20), b = sound(folder, "b.wav", 20),
                    clean_b = sound(folder, "clean/b.wav", 20), other = sound(folder, "other.wav", 20);
  EXPECT_THAT(
      error_of<UsageError>([&] {
        open_datasets({.kind = "sound", .path = a + "," + b, .length = 3, .target = clean_b + "," + other});
      }),
      AllOf(HasSubstr("data.target of the same names as in data.path"), HasSubstr("none named a.wav")));
}

TEST(SoundData, FilesOfTheirOwnForValidationAndTesting) {
  const TemporaryFolder folder;
  const std::string a = sound(folder, "a.wav", 20), b = sound(folder, "b.wav", 10, 100);
  const Datasets data = open_datasets({.kind = "sound", .path = a, .length = 4, .validation = b, .test = b});
  EXPECT_EQ(data.training->size(), 17);
  EXPECT_THAT(example(*data.validation, 0).targets, ElementsAre(100, 101, 102, 103));
  EXPECT_THAT(example(*data.test, 3).targets, ElementsAre(-1000, -1000, 108, 109));
}

TEST(SoundData, StepsOfSeveralFramesAreThoseByHand) {
  const TemporaryFolder folder;
  DataOptions options{
      .kind = "sound", .path = sound(folder, "a.wav", 31, 0, 2), .length = 2, .split = "0.6,0.8"};
  options.patch = 3;  // ten steps, and a frame that is left out
  const Datasets data = open_datasets(options);
  EXPECT_EQ(data.training->columns(), 6);
  EXPECT_EQ(data.training->size(), 5);
  EXPECT_THAT(example(*data.training, 4).values,
              ElementsAre(12, -12, 13, -13, 14, -14, 15, -15, 16, -16, 17, -17));
  // Of the six steps of the training part the first samples are 0, 3 … 15 and the last ones −2, −5 … −17.
  EXPECT_THAT(data.training->column_statistics().mean[0], DoubleNear(7.5 * step, 1e-9));
  EXPECT_THAT(data.training->column_statistics().mean[5], DoubleNear(-9.5 * step, 1e-9));
}

TEST(SoundData, PartsOfTheirOwnHaveTargetsOfTheirOwn) {
  const TemporaryFolder folder;
  const std::string a = sound(folder, "a.wav", 20), clean = sound(folder, "clean.wav", 20, 300);
  DataOptions options{.kind = "sound", .path = a, .length = 4, .validation = a, .target = a};
  options.validation_target = clean;
  EXPECT_THAT(example(*open_datasets(options).validation, 0).targets, ElementsAre(300, 301, 302, 303));
  DataOptions test{.kind = "sound", .length = 4, .test = a};
  test.test_target = clean;
  EXPECT_THAT(example(*open_dataset(test, Split::test), 0).targets, ElementsAre(300, 301, 302, 303));
}

/// The samples of a sound file of one channel.
std::vector<float> samples_of(const std::filesystem::path& path) {
  SoundFile file(path);
  std::vector<float> samples(static_cast<std::size_t>(file.format().frames));
  file.read(0, samples);
  return samples;
}

TEST(Instruments, HaveTheNoiseThatWasAskedForAndDependOnTheSeed) {
  const TemporaryFolder folder;
  for (const double decibels : {-60.0, -20.0, 6.0, 20.0}) {
    const std::filesystem::path own = folder / fmt::format("{}", decibels);
    write_instruments(own, {.seconds = 2, .test_seconds = 1, .rate = 8000, .noise = decibels, .seed = 5});
    for (const auto& [part, frames] : {std::pair("", 16000u), std::pair("-test", 8000u)}) {
      const std::vector<float> clean = samples_of(own / fmt::format("clean{}.wav", part)),
                               noisy = samples_of(own / fmt::format("noisy{}.wav", part));
      ASSERT_EQ(clean.size(), frames);
      ASSERT_EQ(noisy.size(), frames);
      double signal = 0, noise = 0;
      for (std::size_t t = 0; t < clean.size(); ++t) {
        signal += double{clean[t]} * clean[t];
        noise += std::pow(double{noisy[t]} - clean[t], 2);
      }
      EXPECT_GT(signal + noise, 1e-3 * frames);
      EXPECT_NEAR(10 * std::log10(signal / noise), decibels, 0.3);
    }
  }
  const std::vector<float> first = samples_of(folder / "6" / "clean.wav");
  EXPECT_EQ(samples_of(folder / "20" / "clean.wav"), first);
  EXPECT_NE(samples_of(folder / "6" / "clean-test.wav"), std::vector(first.begin(), first.begin() + 8000));
  write_instruments(folder / "other", {.seconds = 2, .test_seconds = 1, .rate = 8000, .seed = 6});
  EXPECT_NE(samples_of(folder / "other" / "clean.wav"), first);
}

TEST(Instruments, RefuseWhatCannotBe) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of<UsageError>([&] { write_instruments(folder / "a", {.seconds = 0.5}); }),
              HasSubstr("1 to 36000 seconds"));
  EXPECT_THAT(error_of<UsageError>([&] { write_instruments(folder / "a", {.rate = 100}); }),
              HasSubstr("4000 to 48000"));
  EXPECT_THAT(error_of<UsageError>([&] { write_instruments(folder / "a", {.noise = std::nan("")}); }),
              HasSubstr("decibels"));
  sound(folder, "a.wav", 4);
  EXPECT_THAT(error_of([&] { write_instruments(folder.path(), {}); }), HasSubstr("new or empty folder"));
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
              HasSubstr("data.validation_target beside data.validation"));
  DataOptions alone{.path = a, .length = 4, .test = a};
  alone.test_target = b;
  EXPECT_THAT(refusal(alone), HasSubstr("one without data.target"));
  DataOptions forgotten{.path = a, .length = 4, .target = b};
  forgotten.test_target = b;
  EXPECT_THAT(refusal(forgotten), HasSubstr("data.test with data.test_target, got none"));
  forgotten = {.path = a, .length = 4};
  forgotten.validation_target = b;
  EXPECT_THAT(refusal(forgotten), HasSubstr("data.validation with data.validation_target, got none"));
  DataOptions wide{.path = a, .length = 4};
  for (const std::int64_t patch : {0, 4097}) {
    wide.patch = patch;
    EXPECT_THAT(refusal(wide), HasSubstr("data.patch of 1 to 4096"));
  }
  wide.patch = 6;
  EXPECT_THAT(refusal(wide), HasSubstr("data.length · data.patch = 24 frames, got 20"));
  EXPECT_THAT(refusal({.path = a, .length = 4, .target = a + "," + b}), HasSubstr("data.path, 1, got 2"));
  DataOptions two{.path = a, .length = 4, .validation = a, .target = b};
  two.validation_target = a + "," + b;
  EXPECT_THAT(refusal(two), HasSubstr("data.validation_target as in data.validation, 1, got 2"));
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
