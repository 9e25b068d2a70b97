#include "io/midi.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/fail.h"

namespace linnet {
namespace {

constexpr std::int64_t ticks_per_step = 24;
constexpr std::int64_t most_ticks = 0x0fffffff;  // between two events: four bytes of seven bits
constexpr std::int64_t drums = 9;                // the channel whose keys are no pitches
constexpr std::int64_t most_voices = 15;
constexpr char velocity = 80;

/// Most significant byte first.
void add_number(std::string& bytes, std::uint64_t value, int count) {
  for (int i = count - 1; i >= 0; --i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

/// Seven bits a byte, most significant first; all but the last have their highest bit set.
void add_length(std::string& bytes, std::uint64_t value) {
  int groups = 1;
  while (value >> (7 * groups) != 0) ++groups;
  for (int i = groups - 1; i >= 0; --i)
    bytes += static_cast<char>((value >> (7 * i) & 0x7f) | (i > 0 ? 0x80 : 0));
}

struct Event {
  std::int64_t step;
  bool begins;
  std::int64_t voice;
  std::int32_t pitch;
};

/// In order of time; at one step notes end before others begin.
std::vector<Event> events_of(const PianoRoll& roll) {
  std::vector<Event> events;
  const std::int64_t steps = std::ssize(roll.pitches) / roll.voices;
  const auto pitch = [&](std::int64_t step, std::int64_t voice) {
    if (step < 0 || step >= steps) return std::int32_t{-1};
    return roll.pitches[static_cast<std::size_t>(step * roll.voices + voice)];
  };
  for (std::int64_t step = 0; step <= steps; ++step)
    for (const bool begins : {false, true})
      for (std::int64_t voice = 0; voice < roll.voices; ++voice) {
        const std::int32_t before = pitch(step - 1, voice), now = pitch(step, voice);
        if (before == now) continue;
        if (const std::int32_t note = begins ? now : before; note >= 0)
          events.push_back({step, begins, voice, note});
      }
  return events;
}

}  // namespace

std::string midi_file(const PianoRoll& roll, std::int64_t steps_per_quarter, double tempo) {
  if (roll.voices < 1 || roll.voices > most_voices)
    fail<UsageError>("midi", "expected 1 … {} voices, got {}", most_voices, roll.voices);
  if (std::ssize(roll.pitches) % roll.voices != 0)
    fail<UsageError>("midi", "expected a pitch for each of {} voices, got {}", roll.voices,
                     roll.pitches.size());
  for (const std::int32_t pitch : roll.pitches)
    if (pitch < -1 || pitch > 127) fail<UsageError>("midi", "expected pitches in −1 … 127, got {}", pitch);
  if (steps_per_quarter < 1 || steps_per_quarter > 960)
    fail<UsageError>("midi", "expected 1 … 960 steps per quarter note, got {}", steps_per_quarter);
  if (!(tempo >= 4 && tempo <= 1000))
    fail<UsageError>("midi", "expected a tempo of 4 … 1000 quarter notes per minute, got {}", tempo);

  std::string track;
  add_length(track, 0);
  track += "\xff\x51\x03";  // microseconds per quarter note
  add_number(track, static_cast<std::uint64_t>(std::lround(60e6 / tempo)), 3);
  std::int64_t now = 0;
  const auto wait_for = [&](std::int64_t step) {
    if (step - now > most_ticks / ticks_per_step)
      fail<UsageError>("midi", "expected at most {} steps in which no note begins or ends, got {}",
                       most_ticks / ticks_per_step, step - now);
    add_length(track, static_cast<std::uint64_t>((step - now) * ticks_per_step));
    now = step;
  };
  for (const Event& event : events_of(roll)) {
    wait_for(event.step);
    const std::int64_t channel = event.voice + (event.voice >= drums ? 1 : 0);
    track += static_cast<char>((event.begins ? 0x90 : 0x80) | channel);
    track += static_cast<char>(event.pitch);
    track += event.begins ? velocity : '\0';
  }
  wait_for(std::ssize(roll.pitches) / roll.voices);
  track += std::string("\xff\x2f\x00", 3);  // the end

  std::string file = "MThd";
  add_number(file, 6, 4);
  add_number(file, 0, 2);  // format
  add_number(file, 1, 2);  // tracks
  add_number(file, static_cast<std::uint64_t>(steps_per_quarter * ticks_per_step), 2);
  file += "MTrk";
  add_number(file, track.size(), 4);
  return file + track;
}

}  // namespace linnet
