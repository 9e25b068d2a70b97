#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/midi.h"

namespace linnet {

/// How notes become tokens: at each step one for each voice, 0 for silence or 1 + pitch − first_pitch.
struct MidiOptions {
  std::int64_t voices = 4, steps_per_quarter = 4;
  std::int32_t first_pitch = 21, last_pitch = 109;  ///< 90 values, as the configuration music has
};

/// What became of the notes of MIDI files.
struct MidiPieces {
  std::vector<std::int32_t> tokens;   ///< [steps, voices], of all pieces
  std::vector<std::int64_t> offsets;  ///< [pieces + 1], the steps at which they begin, and the steps in all
  std::int64_t crowded = 0;           ///< notes for which no voice was free
  std::int64_t outside = 0;           ///< notes of other pitches
  std::vector<std::string> left_out;  ///< the sentences of files that hold no piece
};

/// Appends a piece, which begins with the quarter of its first note. Notes begin and end at the nearest step,
/// and last for one at least. Where the tracks and channels are at most as many as the voices, and none of
/// them sounds two notes at once, each is a voice, from the highest to the lowest mean pitch. Otherwise the
/// notes of a chord go to free voices from high to low, so that voices move the least. Throws Error that
/// names `origin` for pieces without notes of these pitches and for those of more than 2^20 steps.
void append_piece(MidiPieces& pieces, const MidiNotes& notes, const MidiOptions& options,
                  const std::string& origin);

/// The pieces of MIDI files, and of the files in folders and the folders inside that are called .mid or
/// .midi, in the order of their names. With `skip` files that hold no piece are left out. Throws Error
/// otherwise, and where there is no piece at all, UsageError for options that cannot be.
MidiPieces read_midi_pieces(const std::vector<std::filesystem::path>& paths, const MidiOptions& options,
                            bool skip);

}  // namespace linnet
