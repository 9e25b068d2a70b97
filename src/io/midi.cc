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

/// What is left of a file's bytes.
struct Input {
  std::string_view bytes;
  const std::string& origin;

  std::string_view take(std::uint64_t count) {
    if (count > bytes.size())
      fail("midi", "{}: expected {} more bytes, got {}, the end of the file or of a track", origin, count,
           bytes.size());
    const std::string_view taken = bytes.substr(0, count);
    bytes.remove_prefix(count);
    return taken;
  }

  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1)[0]); }

  /// As `add_number` writes it.
  std::uint64_t number(int count) {
    std::uint64_t value = 0;
    for (int i = 0; i < count; ++i) value = value << 8 | byte();
    return value;
  }

  /// As `add_length` writes it, in four bytes at most.
  std::uint64_t length() {
    std::uint64_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint8_t next = byte();
      value = value << 7 | (next & 0x7f);
      if (next < 0x80) return value;
    }
    fail("midi", "{}: expected a length of at most four bytes, got a longer one", origin);
  }

  /// A byte of an event's data.
  std::int32_t data() {
    const std::uint8_t value = byte();
    if (value >= 0x80)
      fail("midi", "{}: expected a data byte below 128, got {}", origin, static_cast<int>(value));
    return value;
  }
};

/// The notes of one channel and pitch that sound: where they began, the first `ended` of which have ended.
struct Sounding {
  std::vector<std::int64_t> begins;
  std::size_t ended = 0;
};

void read_track(Input track, std::int32_t index, std::vector<MidiNote>& notes) {
  constexpr std::int64_t most_ticks_of_track = std::int64_t{1} << 40;
  constexpr std::size_t pitches = 128;
  std::vector<Sounding> all(16 * pitches);
  std::int64_t now = 0;
  const auto sounding = [&](std::int32_t channel, std::int32_t pitch) -> Sounding& {
    return all[static_cast<std::size_t>(channel) * pitches + static_cast<std::size_t>(pitch)];
  };
  // Of several that sound the one that began first.
  const auto end_note = [&](std::int32_t channel, std::int32_t pitch, std::int64_t end) {
    Sounding& own = sounding(channel, pitch);
    if (own.ended == own.begins.size()) return;
    const std::int64_t begin = own.begins[own.ended++];
    if (channel != drums) notes.push_back({begin, end, pitch, index, channel});
    if (own.ended == own.begins.size()) own = {};
  };
  int running = 0;  // the status of events that leave it out
  while (!track.bytes.empty()) {
    now += static_cast<std::int64_t>(track.length());
    if (now > most_ticks_of_track)
      fail("midi", "{}: expected tracks of at most {} ticks, got a longer one", track.origin,
           most_ticks_of_track);
    const int next = track.bytes.empty() ? 0 : static_cast<std::uint8_t>(track.bytes[0]);
    const int status = next >= 0x80 || running == 0 ? track.byte() : running;
    if (status == 0xff) {  // an event beside the music, of which one is the track's end
      const std::uint8_t kind = track.byte();
      track.take(track.length());
      if (kind == 0x2f) break;
    } else if (status == 0xf0 || status == 0xf7) {  // of one device
      track.take(track.length());
      running = 0;
    } else if (status < 0x80 || status >= 0xf0) {
      fail("midi", "{}: expected an event, got a byte of {}", track.origin, status);
    } else {
      running = status;
      const int kind = status & 0xf0;
      const std::int32_t channel = status & 0x0f, first = track.data();
      if (kind == 0xc0 || kind == 0xd0) continue;
      const std::int32_t second = track.data();
      if (kind != 0x80 && kind != 0x90) continue;
      if (kind == 0x90 && second > 0)
        sounding(channel, first).begins.push_back(now);
      else  // also without velocity a note ends
        end_note(channel, first, now);
    }
  }
  for (std::int32_t channel = 0; channel < 16; ++channel)
    for (std::int32_t pitch = 0; pitch < static_cast<std::int32_t>(pitches); ++pitch) {
      // Notes without an end of their own.
      const Sounding open = sounding(channel, pitch);
      for (std::size_t i = open.ended; i < open.begins.size(); ++i)
        end_note(channel, pitch, i + 1 < open.begins.size() ? open.begins[i + 1] : now);
    }
}

}  // namespace

std::string midi_file(const PianoRoll& roll, std::int64_t steps_per_quarter, double tempo) {
  if (roll.voices < 1 || roll.voices > most_midi_voices)
    fail<UsageError>("midi", "expected 1 … {} voices, got {}", most_midi_voices, roll.voices);
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

MidiNotes read_midi(std::string_view bytes, const std::string& origin) {
  Input file{bytes, origin};
  if (bytes.size() < 14 || file.take(4) != "MThd")
    fail("midi", "{}: expected a standard MIDI file, got another one", origin);
  Input header{file.take(file.number(4)), origin};
  const std::uint64_t format = header.number(2), tracks = header.number(2), division = header.number(2);
  if (format > 1) fail("midi", "{}: expected a MIDI file of format 0 or 1, got {}", origin, format);
  if (division == 0 || division >= 0x8000)
    fail("midi", "{}: expected times in ticks of a quarter note, got {}", origin,
         division == 0 ? "0 of them" : "frames of SMPTE");
  MidiNotes result{static_cast<std::int64_t>(division), {}};
  for (std::uint64_t track = 0; track < tracks;) {
    const bool is_track = file.take(4) == "MTrk";
    const std::string_view contents = file.take(file.number(4));
    if (!is_track) continue;
    read_track({contents, origin}, static_cast<std::int32_t>(track), result.notes);
    ++track;
  }
  std::ranges::stable_sort(result.notes, [](const MidiNote& a, const MidiNote& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.pitch > b.pitch;
  });
  return result;
}

}  // namespace linnet
