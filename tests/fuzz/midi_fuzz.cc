// A MIDI file: its notes, and the tokens of its voices. The first byte chooses the voices.

#include "base/fail.h"
#include "data/midi_pieces.h"
#include "fuzz.h"

namespace linnet::fuzz {

void answer(std::string_view input) {
  const std::int64_t voices = 1 + take_choice(input) % 6;
  const MidiNotes notes = read_midi(input, "input");
  MidiPieces pieces;
  append_piece(pieces, notes, {.voices = voices}, "input");
}

std::vector<std::string> seeds() {
  const std::vector<std::int32_t> pitches = {60, 50, 62, 50, -1, 48, 64, -1};
  const std::string file = midi_file({2, pitches}, 4, 120);
  return {with_choice(1, file), with_choice(0, file)};
}

std::vector<std::string> words() { return {"MThd", "MTrk", "\x90\x40\x50", "\xff\x2f", "\xff\xff\xff\x7f"}; }

}  // namespace linnet::fuzz
