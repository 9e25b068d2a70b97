#include "io/midi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "linnet/error.h"
#include "support/errors.h"

namespace linnet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

/// A file of tracks, of 96 ticks to a quarter note.
std::string file_of(int format, const std::vector<std::string>& tracks, int division = 96) {
  std::string file = "MThd" + bytes({0, 0, 0, 6, 0, format, 0, static_cast<int>(tracks.size()), division >> 8,
                                     division & 255});
  for (const std::string& track : tracks)
    file += "MTrk" + bytes({0, 0, 0, static_cast<int>(track.size())}) + track;
  return file;
}

std::vector<std::int64_t> numbers_of(const MidiNote& note) {
  return {note.begin, note.end, note.pitch, note.track, note.channel};
}

TEST(Midi, ReadsWhatItWrites) {
  const std::vector<std::int32_t> pitches = {60, -1, 60, 64, -1, 65};
  const MidiNotes found = read_midi(midi_file({2, pitches}, 4, 120), "file");
  EXPECT_EQ(found.ticks_per_quarter, 96);
  ASSERT_EQ(found.notes.size(), 3u);
  EXPECT_THAT(numbers_of(found.notes[0]), ElementsAre(0, 48, 60, 0, 0));
  EXPECT_THAT(numbers_of(found.notes[1]), ElementsAre(24, 48, 64, 0, 1));
  EXPECT_THAT(numbers_of(found.notes[2]), ElementsAre(48, 72, 65, 0, 1));
}

TEST(Midi, ReadsTracksWithEveryKindOfEvent) {
  const std::string first = bytes({0, 0xff, 0x51, 3, 7, 0xa1, 0x20, 0, 0xf0, 2, 1, 0xf7, 0, 0xff, 0x2f, 0}),
                    second = bytes({0,  0xc0, 5,    0,  0xb0, 7, 100, 0x81, 0x00, 0x90, 60, 80,  // at 128
                                    10, 64,   80,                      // running status
                                    10, 60,   0,                       // velocity 0: its end
                                    0,  0xe0, 1,    2,                 // bend
                                    5,  0xd0, 3,                       // pressure
                                    0,  0x90, 64,   70,                // again: the one before ends
                                    7,  0xff, 0x2f, 0,  1,    2, 3}),  // behind the end is nothing
      third = bytes({0, 0x99, 35, 80, 9, 0x89, 35, 0, 0, 0x92, 70, 1, 4, 0x82, 70, 9});
  std::string file = file_of(1, {first, second, third});
  file.insert(14, "XFIH" + bytes({0, 0, 0, 2, 9, 9}));  // a chunk of another kind
  const MidiNotes found = read_midi(file + "behind", "file");
  ASSERT_EQ(found.notes.size(), 4u);  // drums are left out
  EXPECT_THAT(numbers_of(found.notes[0]), ElementsAre(9, 13, 70, 2, 2));
  EXPECT_THAT(numbers_of(found.notes[1]), ElementsAre(128, 148, 60, 1, 0));
  EXPECT_THAT(numbers_of(found.notes[2]), ElementsAre(138, 153, 64, 1, 0));
  EXPECT_THAT(numbers_of(found.notes[3]), ElementsAre(153, 160, 64, 1, 0));
  // Every shorter file is an error, and none reads beyond its end.
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_THAT(error_of([&] { read_midi(std::string_view(file).substr(0, size), "short"); }),
                HasSubstr("[midi] short: expected"));
}

TEST(Midi, NotesOfOnePitchEndInTheOrderOfTheirBeginnings) {
  const auto notes = [](const std::string& track) {
    std::vector<std::vector<std::int64_t>> result;
    for (const MidiNote& note : read_midi(file_of(0, {track}), "file").notes)
      result.push_back({note.begin, note.end});
    return result;
  };
  using Times = std::vector<std::int64_t>;
  const std::string on = bytes({0x90, 67, 80}), off = bytes({0x80, 67, 0});
  const auto after = [](int ticks, const std::string& event) { return bytes({ticks}) + event; };
  EXPECT_THAT(notes(after(0, on) + after(24, on) + after(24, off) + after(48, off)),
              ElementsAre(Times{0, 48}, Times{24, 96}));
  EXPECT_THAT(notes(after(0, on) + after(0, on) + after(24, off) + after(48, off)),
              ElementsAre(Times{0, 24}, Times{0, 72}));
  EXPECT_THAT(
      notes(after(0, on) + after(24, on) + after(24, on) + after(24, off) + after(1, bytes({0xc0, 1}))),
      ElementsAre(Times{0, 72}, Times{24, 48}, Times{48, 73}));
}

TEST(Midi, RefusesWhatItCannotRead) {
  const auto error = [](const std::string& file) { return error_of([&] { read_midi(file, "a.mid"); }); };
  const std::string fine = bytes({0, 0x90, 60, 80});
  EXPECT_THAT(error("RIFF, something else"), HasSubstr("a.mid: expected a standard MIDI file"));
  EXPECT_THAT(error(file_of(2, {fine})), HasSubstr("of format 0 or 1, got 2"));
  EXPECT_THAT(error(file_of(1, {fine}, 0xe728)), HasSubstr("got frames of SMPTE"));
  EXPECT_THAT(error(file_of(1, {fine}, 0)), HasSubstr("got 0 of them"));
  EXPECT_THAT(error(file_of(0, {bytes({0, 60, 80})})), HasSubstr("expected an event, got a byte of 60"));
  EXPECT_THAT(error(file_of(0, {bytes({0, 0xf4, 80})})), HasSubstr("expected an event, got a byte of 244"));
  EXPECT_THAT(error(file_of(0, {bytes({0, 0x90, 200, 80})})), HasSubstr("a data byte below 128, got 200"));
  EXPECT_THAT(error(file_of(0, {bytes({0x80, 0x80, 0x80, 0x80, 0, 0x90, 60, 80})})),
              HasSubstr("a length of at most four bytes"));
  EXPECT_TRUE(read_midi(file_of(0, {}), "file").notes.empty());
}

}  // namespace
}  // namespace linnet
