// Pieces of music in MIDI files as tokens of voices.
#include "data/midi_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <vector>

#include "data/token_file.h"
#include "io/file.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

MidiPieces piece_of(const std::vector<MidiNote>& notes, const MidiOptions& options) {
  MidiPieces pieces;
  append_piece(pieces, {.ticks_per_quarter = 100, .notes = notes}, options, "a.mid");
  return pieces;
}

TEST(MidiPieces, VoicesComeBackFromAFile) {
  // Voices a decade apart keep their order; a pitch that is repeated is one note.
  std::mt19937 draw(3);
  std::vector<std::int32_t> pitches;
  for (int step = 0; step < 200; ++step)
    for (const int centre : {80, 70, 60, 50})
      pitches.push_back(step == 0 || draw() % 5 > 0 ? centre + static_cast<int>(draw() % 10) : -1);
  MidiPieces pieces;
  append_piece(pieces, read_midi(midi_file({4, pitches}, 4, 90), "file"), {}, "file");
  EXPECT_THAT(pieces.offsets, ElementsAre(0, 200));
  ASSERT_EQ(pieces.tokens.size(), pitches.size());
  for (std::size_t i = 0; i < pitches.size(); ++i)
    EXPECT_EQ(pieces.tokens[i], pitches[i] < 0 ? 0 : pitches[i] - 20) << i;
  EXPECT_EQ(pieces.crowded, 0);
}

TEST(MidiPieces, NotesStandAtTheNearestStep) {
  const MidiOptions options = {.voices = 1, .steps_per_quarter = 2, .first_pitch = 60, .last_pitch = 71};
  // Two quarters of silence go; 26 of 100 ticks are nearer to half a quarter than to none.
  const MidiPieces pieces = piece_of(
      {{226, 301, 60, 0, 0}, {301, 302, 62, 0, 0}, {324, 380, 71, 0, 0}, {400, 500, 72, 0, 0}}, options);
  EXPECT_THAT(pieces.tokens, ElementsAre(0, 1, 12, 12));
  EXPECT_EQ(pieces.crowded, 0);  // 301 and 324 are at one step, at which the later note sounds
  EXPECT_EQ(pieces.outside, 1);
}

TEST(MidiPieces, TracksAreVoicesWhereTheyCanBe) {
  const MidiOptions options = {.voices = 3, .steps_per_quarter = 1, .first_pitch = 1, .last_pitch = 127};
  // The parts cross, and stay what they are: the one of track 1 is higher in the mean.
  EXPECT_THAT(
      piece_of({{0, 100, 80, 1, 0}, {0, 100, 50, 0, 0}, {100, 200, 60, 0, 0}, {100, 200, 55, 1, 0}}, options)
          .tokens,
      ElementsAre(80, 50, 0, 55, 60, 0));
  // One track with a chord: the nearest voices, the highest first.
  EXPECT_THAT(piece_of({{0, 100, 72, 0, 0},
                        {100, 200, 74, 0, 0},
                        {100, 200, 65, 0, 0},
                        {100, 200, 53, 0, 0},
                        {200, 300, 55, 0, 0}},
                       options)
                  .tokens,
              ElementsAre(72, 0, 0, 74, 65, 53, 0, 0, 55));
  const MidiPieces crowded = piece_of(
      {{0, 100, 72, 0, 0}, {0, 100, 65, 0, 0}, {0, 100, 60, 0, 0}, {0, 100, 55, 0, 0}, {0, 100, 50, 0, 0}},
      options);
  EXPECT_EQ(crowded.crowded, 2);
  EXPECT_THAT(crowded.tokens, ElementsAre(72, 65, 60));
}

TEST(MidiPieces, NotesShorterThanAStepLeaveTheVoicesAsTheyAre) {
  const MidiOptions options = {.voices = 2, .steps_per_quarter = 1, .first_pitch = 1, .last_pitch = 127};
  // Two tracks of one note at a time, with two short ones at one step, of which the later one sounds.
  const MidiPieces pieces = piece_of({{0, 40, 72, 0, 0},
                                      {0, 300, 60, 1, 0},
                                      {40, 120, 74, 0, 0},
                                      {120, 200, 50, 0, 0},
                                      {200, 300, 76, 0, 0}},
                                     options);
  EXPECT_THAT(pieces.tokens, ElementsAre(74, 60, 50, 60, 76, 60));
  EXPECT_EQ(pieces.crowded, 0);
  // In one track the longest of one pitch sounds, in one voice.
  EXPECT_THAT(piece_of({{0, 100, 72, 0, 0}, {0, 200, 72, 0, 0}, {0, 200, 60, 0, 0}}, options).tokens,
              ElementsAre(72, 60, 72, 60));
}

TEST(MidiPieces, RefusesWhatIsNoPiece) {
  EXPECT_EQ(error_of([] { piece_of({}, {}); }), "[midi] a.mid: expected notes of pitches 21 … 109, got none");
  EXPECT_EQ(error_of([] {
              piece_of({{0, 1, 3, 0, 0}}, {});
            }),
            "[midi] a.mid: expected notes of pitches 21 … 109, got others");
  EXPECT_THAT(error_of([] {
                piece_of({{0, std::int64_t{1} << 40, 60, 0, 0}}, {});
              }),
              HasSubstr("a piece of at most 1048576 steps, got 43980465111"));
  EXPECT_THAT(error_of<UsageError>([] { piece_of({}, {.voices = 0}); }), HasSubstr("1 … 64 voices, got 0"));
  EXPECT_THAT(error_of<UsageError>([] { piece_of({}, {.steps_per_quarter = 0}); }),
              HasSubstr("1 … 960 steps"));
  EXPECT_THAT(error_of<UsageError>([] { piece_of({}, {.first_pitch = 9, .last_pitch = 8}); }),
              HasSubstr("got 9 … 8"));
}

TEST(MidiPieces, FoldersBecomeAFileOfTokens) {
  const TemporaryFolder folder;
  const std::vector<std::int32_t> one = {60, 62, 64}, two = {72};
  std::filesystem::create_directories(folder / "in/deep");
  write_file_atomically(folder / "in/deep/b.MIDI", midi_file({1, two}, 4, 120));
  write_file_atomically(folder / "in/a.mid", midi_file({1, one}, 4, 120));
  write_file_atomically(folder / "in/notes.txt", "no music");
  const MidiOptions options = {.voices = 2};
  const MidiPieces all = read_midi_pieces({folder / "in"}, options, false);
  write_token_file(folder / "out.safetensors", all.tokens, all.offsets, options.voices);
  const TokenFile file(folder / "out.safetensors", 2, 1);
  EXPECT_THAT(file.offsets(), ElementsAre(0, 3, 4));
  EXPECT_EQ(file.fields(), 2);
  std::vector<std::int32_t> tokens(8);
  const std::int64_t sizes[] = {90, 90};
  file.read(0, sizes, tokens);
  EXPECT_THAT(tokens, ElementsAre(40, 0, 42, 0, 44, 0, 52, 0));

  write_file_atomically(folder / "in/c.mid", "no music");
  EXPECT_THAT(error_of([&] { read_midi_pieces({folder / "in"}, options, false); }), HasSubstr("in/c.mid"));
  const MidiPieces pieces = read_midi_pieces({folder / "in"}, options, true);
  EXPECT_THAT(pieces.left_out, ElementsAre(HasSubstr("in/c.mid")));
  EXPECT_EQ(pieces.offsets.size(), 3u);
  EXPECT_THAT(error_of([&] { read_midi_pieces({folder / "in/c.mid"}, options, true); }),
              AllOf(HasSubstr("got none in 1; the first: "), HasSubstr("c.mid")));
  EXPECT_THAT(error_of([&] {
                read_midi_pieces({folder / "in", folder / "gone.mid"}, options, true);
              }),
              HasSubstr("gone.mid"));
  EXPECT_THAT(error_of([&] { read_midi_pieces({folder / "none"}, options, false); }), HasSubstr("none"));
  std::filesystem::create_directories(folder / "empty");
  EXPECT_THAT(error_of([&] { read_midi_pieces({folder / "empty"}, options, false); }), HasSubstr("got none"));
}

}  // namespace
}  // namespace linnet
