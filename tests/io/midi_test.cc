#include "io/midi.h"

#include <gtest/gtest.h>

#include <vector>

#include "linnet/error.h"

namespace linnet {
namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string result;
  for (const int value : values) result += static_cast<char>(value);
  return result;
}

TEST(Midi, FilesAreThoseOfTheSpecification) {
  // Two voices of three steps: the first holds 60 for two steps, the second is silent, then 64, 65.
  const std::vector<std::int32_t> pitches = {60, -1, 60, 64, -1, 65};
  const std::string track = bytes({0,  0xff, 0x51, 3,  0x07, 0xa1, 0x20,  // 500,000 µs per quarter note
                                   0,  0x90, 60,   80,                    // step 0
                                   24, 0x91, 64,   80,                    // step 1
                                   24, 0x80, 60,   0,  0,    0x81, 64,   0, 0, 0x91, 65, 80,  // step 2
                                   24, 0x81, 65,   0,                                         // the end
                                   0,  0xff, 0x2f, 0});
  const std::string expected = "MThd" + bytes({0, 0, 0, 6, 0, 0, 0, 1, 0, 96}) + "MTrk" +
                               bytes({0, 0, 0, static_cast<int>(track.size())}) + track;
  EXPECT_EQ(midi_file({2, pitches}, 4, 120), expected);
}

TEST(Midi, LongTimesTakeSeveralBytesAndDrumsAreLeftOut) {
  std::vector<std::int32_t> pitches(11 * 200, -1);
  pitches[11 * 199 + 9] = 40;
  const std::string file = midi_file({11, pitches}, 4, 120);
  // 199 · 24 = 4776 = 37 · 128 + 40 ticks, then channel 10 in place of 9.
  EXPECT_NE(file.find(bytes({0x80 | 37, 40, 0x9a, 40, 80, 24, 0x8a, 40, 0})), std::string::npos);
}

TEST(Midi, SilenceAloneIsAFile) {
  const std::vector<std::int32_t> pitches(5, -1);
  EXPECT_NE(midi_file({1, pitches}, 4, 120).find(bytes({120, 0xff, 0x2f, 0})), std::string::npos);
  EXPECT_FALSE(midi_file({1, {}}, 4, 120).empty());
}

TEST(Midi, RefusesWhatHasNoPlaceInAFile) {
  const std::vector<std::int32_t> fine = {60, 61}, high = {128}, low = {-2};
  EXPECT_THROW(midi_file({0, fine}, 4, 120), UsageError);
  EXPECT_THROW(midi_file({16, {}}, 4, 120), UsageError);
  EXPECT_THROW(midi_file({3, fine}, 4, 120), UsageError);
  EXPECT_THROW(midi_file({1, high}, 4, 120), UsageError);
  EXPECT_THROW(midi_file({1, low}, 4, 120), UsageError);
  EXPECT_THROW(midi_file({1, fine}, 0, 120), UsageError);
  EXPECT_THROW(midi_file({1, fine}, 4, 1), UsageError);
  std::vector<std::int32_t> silent(0x0fffffff / 24, -1);
  EXPECT_NE(midi_file({1, silent}, 4, 120).find(bytes({0xff, 0xff, 0xff, 0x70, 0xff, 0x2f, 0})),
            std::string::npos);
  silent.push_back(-1);
  EXPECT_THROW(midi_file({1, silent}, 4, 120), UsageError);
}

}  // namespace
}  // namespace linnet
