#include "io/sound.h"

#ifdef LINNET_SNDFILE
#include <sndfile.h>
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "io/file.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

#ifdef LINNET_SNDFILE

constexpr float step = 1.0f / 32768;

std::vector<float> wave(std::size_t samples) {
  std::vector<float> result(samples);
  for (std::size_t i = 0; i < samples; ++i) result[i] = 0.9f * std::sin(0.05f * static_cast<float>(i));
  return result;
}

TEST(Sound, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  for (const std::int64_t channels : {1, 2, 3}) {
    const std::vector<float> samples = wave(static_cast<std::size_t>(1000 * channels));
    write_sound(folder / "a.wav", samples, channels, 8000);
    SoundFile file(folder / "a.wav");
    EXPECT_EQ(file.format(), (SoundFormat{8000, channels, 1000}));
    std::vector<float> read(samples.size());
    file.read(0, read);
    EXPECT_THAT(read, Pointwise(FloatNear(step), samples));
    std::vector<float> middle(static_cast<std::size_t>(10 * channels));
    file.read(500, middle);
    EXPECT_TRUE(std::ranges::equal(
        middle, std::span(read).subspan(static_cast<std::size_t>(500 * channels), middle.size())));
  }
}

TEST(Sound, RefusesWavFilesThatHaveBeenCut) {
  const TemporaryFolder folder;
  write_sound(folder / "a.wav", wave(1000), 1, 8000);
  const std::string whole = read_file(folder / "a.wav");
  for (const std::size_t bytes : {whole.size() - 1, whole.size() / 2, std::size_t{60}}) {
    write_file_atomically(folder / "cut.wav", whole.substr(0, bytes));
    EXPECT_THAT(error_of([&] { SoundFile(folder / "cut.wav"); }),
                AllOf(HasSubstr("cut.wav: expected 2000 bytes of samples, got"), HasSubstr("has been cut")));
  }
  // Of a program that did not know the size.
  std::string piped = whole;
  const std::size_t size = piped.find("data") + 4;
  std::ranges::fill(piped.begin() + static_cast<std::ptrdiff_t>(size),
                    piped.begin() + static_cast<std::ptrdiff_t>(size + 4), '\xff');
  write_file_atomically(folder / "piped.wav", piped);
  EXPECT_EQ(SoundFile(folder / "piped.wav").format().frames, 1000);
}

TEST(Sound, ReadsFlacFromAnyPosition) {
  const TemporaryFolder folder;
  const std::vector<float> samples = wave(40000);
  SF_INFO info{};
  info.samplerate = 16000;
  info.channels = 2;
  info.format = SF_FORMAT_FLAC | SF_FORMAT_PCM_24;
  SNDFILE* const written = sf_open((folder / "a.flac").c_str(), SFM_WRITE, &info);
  ASSERT_NE(written, nullptr);
  EXPECT_EQ(sf_writef_float(written, samples.data(), 20000), 20000);
  sf_close(written);
  SoundFile file(folder / "a.flac");
  EXPECT_EQ(file.format(), (SoundFormat{16000, 2, 20000}));
  for (const std::size_t frame : {19990, 0, 12345, 4095, 4096}) {
    std::vector<float> read(20);
    file.read(static_cast<std::int64_t>(frame), read);
    EXPECT_THAT(read, Pointwise(FloatNear(step / 128),
                                std::vector(samples.begin() + 2 * static_cast<std::int64_t>(frame),
                                            samples.begin() + 2 * static_cast<std::int64_t>(frame) + 20)));
  }
}

TEST(Sound, IsAWavFileOfSixteenBits) {
  const TemporaryFolder folder;
  write_sound(folder / "a.wav", std::vector<float>{0, 0.5f, -0.5f, 1, 2, -3}, 1, 44100);
  const std::string bytes = read_file(folder / "a.wav");
  ASSERT_EQ(bytes.size(), 44u + 12u);
  EXPECT_EQ(bytes.substr(0, 4), "RIFF");
  EXPECT_EQ(bytes.substr(8, 8), "WAVEfmt ");
  const auto sample = [&](std::size_t i) {
    return static_cast<std::int16_t>(static_cast<unsigned char>(bytes[44 + 2 * i]) |
                                     static_cast<unsigned char>(bytes[45 + 2 * i]) << 8);
  };
  EXPECT_EQ(sample(0), 0);
  EXPECT_NEAR(sample(1), 16384, 1);
  EXPECT_NEAR(sample(2), -16384, 1);
  // Clipped, not wrapped around.
  for (const std::size_t i : {3, 4}) EXPECT_NEAR(sample(i), 32767, 1);
  EXPECT_NEAR(sample(5), -32768, 1);
}

TEST(SoundWriter, PiecesMakeTheSameFile) {
  const TemporaryFolder folder;
  const std::vector<float> samples = wave(2 * 5000);
  write_sound(folder / "whole.wav", samples, 2, 8000);
  write_sound(folder / "pieces.wav", std::vector<float>{0, 0}, 2, 8000);
  const std::string old = read_file(folder / "pieces.wav");
  SoundWriter writer(folder / "pieces.wav", 2, 8000);
  for (std::size_t at = 0; at < samples.size();) {
    const std::size_t size = std::min<std::size_t>(at + 2, samples.size() - at);
    writer.write(std::span(samples).subspan(at, size));
    at += size;
  }
  EXPECT_EQ(read_file(folder / "pieces.wav"), old);
  writer.commit();
  EXPECT_EQ(read_file(folder / "pieces.wav"), read_file(folder / "whole.wav"));
  { SoundWriter(folder / "pieces.wav", 1, 8000).write(samples); }
  EXPECT_EQ(read_file(folder / "pieces.wav"), read_file(folder / "whole.wav"));
  EXPECT_EQ(folder.entries(), 2);
}

TEST(Sound, RefusesWhatIsNoSound) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::filesystem::path& path) {
    return error_of([&] { SoundFile file(path); });
  };
  EXPECT_THAT(refusal(folder / "none.wav"), HasSubstr("none.wav: No such file"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("no regular file"));
  EXPECT_THAT(refusal(folder.file("text.wav", "some text")),
              AllOf(HasSubstr("text.wav"), HasSubstr("WAV or FLAC")));
  EXPECT_THAT(refusal(folder.file("empty.wav", "")), HasSubstr("empty.wav"));
  write_sound(folder / "a.wav", {}, 1, 8000);
  EXPECT_THAT(refusal(folder / "a.wav"), HasSubstr("got 0 frames"));
  write_sound(folder / "b.wav", wave(100), 1, 8000);
  SoundFile file(folder / "b.wav");
  std::vector<float> samples(10);
  EXPECT_THAT(error_of([&] { file.read(91, samples); }), HasSubstr("10 frames from frame 91"));
}

TEST(Sound, RefusesToWriteWhatCannotBe) {
  const TemporaryFolder folder;
  const auto refusal = [&](std::vector<float> samples, std::int64_t channels, std::int64_t rate) {
    return error_of<UsageError>([&] { write_sound(folder / "a.wav", samples, channels, rate); });
  };
  EXPECT_THAT(refusal({0, 0, 0}, 2, 8000), HasSubstr("whole frames of 2 channels, got 3"));
  EXPECT_THAT(refusal({0}, 0, 8000), HasSubstr("got 0"));
  EXPECT_THAT(refusal({0}, 1, 0), HasSubstr("rate"));
  EXPECT_THAT(refusal({std::numeric_limits<float>::quiet_NaN()}, 1, 8000), HasSubstr("finite"));
  EXPECT_THAT(error_of([&] { write_sound(folder / "none" / "a.wav", std::vector<float>{0}, 1, 8000); }),
              HasSubstr("none"));
}

#else

TEST(Sound, IsRefusedWithoutItsLibrary) {
  EXPECT_THAT(error_of<UsageError>([] { SoundFile file("a.wav"); }),
              AllOf(HasSubstr("libsndfile"), HasSubstr("a.wav")));
  EXPECT_THAT(error_of<UsageError>([] { write_sound("a.wav", {}, 1, 8000); }), HasSubstr("libsndfile"));
}

#endif

}  // namespace
}  // namespace linnet
