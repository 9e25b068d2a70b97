#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace linnet {

/// Sounding pitches at equal steps of time, a voice each: pitches [steps, voices], MIDI's numbers 0 … 127 (60
/// is middle C), or −1 for silence. A pitch that goes on from one step to the next in a voice is one note.
struct PianoRoll {
  std::int64_t voices = 0;
  std::span<const std::int32_t> pitches;
};

/// The bytes of a standard MIDI file of format 0 (The MIDI Manufacturers Association, "The Complete MIDI 1.0
/// Detailed Specification", 1996): voice i on channel i, without the channel of drums, with
/// `steps_per_quarter` steps to a quarter note, of which `tempo` come to a minute. Throws UsageError for more
/// than 15 voices, pitches outside their range, steps and tempos outside 1 … 960 and 4 … 1000, and more than
/// 11,184,810 steps in which no note begins or ends.
std::string midi_file(const PianoRoll& roll, std::int64_t steps_per_quarter, double tempo);

}  // namespace linnet
