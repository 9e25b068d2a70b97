#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

/// Sounding pitches at equal steps of time, a voice each: pitches [steps, voices], MIDI's numbers 0 … 127 (60
/// is middle C), or −1 for silence. A pitch that goes on from one step to the next in a voice is one note.
struct PianoRoll {
  std::int64_t voices = 0;
  std::span<const std::int32_t> pitches;
};

/// A channel each, but for that of drums.
inline constexpr std::int64_t most_midi_voices = 15;

/// The bytes of a standard MIDI file of format 0 (The MIDI Manufacturers Association, "The Complete MIDI 1.0
/// Detailed Specification", 1996): voice i on channel i, without the channel of drums, with
/// `steps_per_quarter` steps to a quarter note, of which `tempo` come to a minute. Throws UsageError for more
/// than `most_midi_voices`, pitches outside their range, steps and tempos outside 1 … 960 and 4 … 1000, and
/// more than 11,184,810 steps in which no note begins or ends.
std::string midi_file(const PianoRoll& roll, std::int64_t steps_per_quarter, double tempo);

struct MidiNote {
  std::int64_t begin = 0, end = 0;  ///< in ticks from the file's beginning
  std::int32_t pitch = 0;           ///< 0 … 127
  std::int32_t track = 0, channel = 0;
};

struct MidiNotes {
  std::int64_t ticks_per_quarter = 1;
  std::vector<MidiNote> notes;  ///< in the order of their beginnings, at one tick high ones first
};

/// The notes of a standard MIDI file of format 0 or 1 (the same specification), without the channel of drums.
/// Of several notes of one pitch and channel the one that began first ends first. One without an end lasts to
/// the beginning of the next one, or to the end of its track. Throws
/// Error that names `origin` for bytes that are no such file or are damaged, for times in SMPTE frames, and
/// for tracks longer than 2^40 ticks.
MidiNotes read_midi(std::string_view bytes, const std::string& origin);

}  // namespace linnet
