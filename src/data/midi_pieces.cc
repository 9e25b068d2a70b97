#include "data/midi_pieces.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

#include "base/fail.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_steps = std::int64_t{1} << 20;

/// A note on the grid of steps.
struct StepNote {
  std::int64_t begin, end;
  std::int32_t pitch;
  std::pair<std::int32_t, std::int32_t> part;  // track and channel
};

std::int64_t nearest_step(std::int64_t tick, std::int64_t ticks_per_quarter, std::int64_t steps_per_quarter) {
  return (2 * tick * steps_per_quarter + ticks_per_quarter) / (2 * ticks_per_quarter);
}

/// The voice of each note, where every part is one; empty where they cannot be.
std::vector<std::int64_t> voices_of_parts(const std::vector<StepNote>& notes, std::int64_t voices) {
  struct Part {
    std::int64_t end = 0, count = 0, pitches = 0, voice = 0;
    double mean() const { return static_cast<double>(pitches) / static_cast<double>(count); }
  };
  std::map<std::pair<std::int32_t, std::int32_t>, Part> parts;
  for (const StepNote& note : notes) {
    Part& part = parts[note.part];
    if (note.begin < part.end || std::ssize(parts) > voices) return {};
    part.end = note.end;
    ++part.count;
    part.pitches += note.pitch;
  }
  std::vector<Part*> sorted;
  for (auto& [name, part] : parts) sorted.push_back(&part);
  std::ranges::stable_sort(sorted, [](const Part* a, const Part* b) { return a->mean() > b->mean(); });
  for (std::size_t i = 0; i < sorted.size(); ++i) sorted[i]->voice = static_cast<std::int64_t>(i);
  std::vector<std::int64_t> result;
  for (const StepNote& note : notes) result.push_back(parts[note.part].voice);
  return result;
}

/// The free voice of each note whose last pitch is the nearest, −1 where none is free.
std::vector<std::int64_t> nearest_voices(const std::vector<StepNote>& notes, std::int64_t voices) {
  constexpr std::int32_t octave = 12;  // the distance to a voice that has not sounded yet
  struct Voice {
    std::int64_t end = 0;
    std::int32_t pitch = -1;
  };
  std::vector<Voice> all(static_cast<std::size_t>(voices));
  std::vector<std::int64_t> result;
  for (const StepNote& note : notes) {
    std::int64_t chosen = -1;
    std::int32_t least = std::numeric_limits<std::int32_t>::max();
    for (std::int64_t i = 0; i < voices; ++i) {
      const Voice& voice = all[static_cast<std::size_t>(i)];
      const std::int32_t distance = voice.pitch < 0 ? octave : std::abs(voice.pitch - note.pitch);
      if (voice.end > note.begin || distance >= least) continue;
      chosen = i;
      least = distance;
    }
    if (chosen >= 0) all[static_cast<std::size_t>(chosen)] = {note.end, note.pitch};
    result.push_back(chosen);
  }
  return result;
}

void check(const MidiOptions& options) {
  constexpr std::int64_t most_voices = 64, most_steps_per_quarter = 960;
  if (options.voices < 1 || options.voices > most_voices)
    fail<UsageError>("midi", "expected 1 … {} voices, got {}", most_voices, options.voices);
  if (options.steps_per_quarter < 1 || options.steps_per_quarter > most_steps_per_quarter)
    fail<UsageError>("midi", "expected 1 … {} steps per quarter note, got {}", most_steps_per_quarter,
                     options.steps_per_quarter);
  if (options.first_pitch < 0 || options.last_pitch > 127 || options.first_pitch > options.last_pitch)
    fail<UsageError>("midi", "expected pitches in 0 … 127, the first one not above the last one, got {} … {}",
                     options.first_pitch, options.last_pitch);
}

/// The files that the paths name.
std::vector<fs::path> midi_files(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    std::vector<fs::path> inside;
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied)) {
      std::string extension = entry.path().extension().string();
      std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
      if (entry.is_regular_file() && (extension == ".mid" || extension == ".midi"))
        inside.push_back(entry.path());
    }
    if (inside.empty()) fail("midi", "expected files called .mid or .midi in {}, got none", path.string());
    std::ranges::sort(inside);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

}  // namespace

void append_piece(MidiPieces& pieces, const MidiNotes& notes, const MidiOptions& options,
                  const std::string& origin) {
  check(options);
  const auto step_of = [&](std::int64_t tick) {
    return nearest_step(tick, notes.ticks_per_quarter, options.steps_per_quarter);
  };
  std::vector<StepNote> all;
  std::int64_t outside = 0, last = 0;
  for (const MidiNote& note : notes.notes) {
    if (note.pitch < options.first_pitch || note.pitch > options.last_pitch) {
      ++outside;
      continue;
    }
    const std::int64_t begin = step_of(note.begin), end = std::max(begin + 1, step_of(note.end));
    all.push_back({begin, end, note.pitch, {note.track, note.channel}});
    last = std::max(last, end);
  }
  if (all.empty())
    fail("midi", "{}: expected notes of pitches {} … {}, got {}", origin, options.first_pitch,
         options.last_pitch, outside > 0 ? "others" : "none");
  // Notes that begin at ticks apart may begin at one step.
  std::ranges::stable_sort(all, [](const StepNote& a, const StepNote& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.pitch > b.pitch;
  });
  const std::int64_t first = all.front().begin / options.steps_per_quarter * options.steps_per_quarter;
  if (last - first > most_steps)
    fail("midi", "{}: expected a piece of at most {} steps, got {}", origin, most_steps, last - first);

  std::vector<std::int64_t> voices = voices_of_parts(all, options.voices);
  if (voices.empty()) voices = nearest_voices(all, options.voices);
  const std::size_t before = pieces.tokens.size();
  pieces.tokens.resize(before + static_cast<std::size_t>((last - first) * options.voices));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (voices[i] < 0) {
      ++pieces.crowded;
      continue;
    }
    for (std::int64_t step = all[i].begin - first; step < all[i].end - first; ++step)
      pieces.tokens[before + static_cast<std::size_t>(step * options.voices + voices[i])] =
          1 + all[i].pitch - options.first_pitch;
  }
  pieces.outside += outside;
  if (pieces.offsets.empty()) pieces.offsets.push_back(0);
  pieces.offsets.push_back(std::ssize(pieces.tokens) / options.voices);
}

MidiPieces read_midi_pieces(const std::vector<fs::path>& paths, const MidiOptions& options, bool skip) {
  check(options);
  MidiPieces pieces;
  for (const fs::path& path : midi_files(paths)) {
    try {
      append_piece(pieces, read_midi(read_file(path), path.string()), options, path.string());
    } catch (const Error& error) {
      if (!skip) throw;
      pieces.left_out.push_back(error.what());
    }
  }
  if (pieces.offsets.empty())
    fail("midi", "expected a MIDI file that can be read at least, got {} that cannot",
         pieces.left_out.size());
  return pieces;
}

void write_midi_pieces(const fs::path& path, const MidiPieces& pieces, const MidiOptions& options) {
  const std::vector<NamedTensor> tensors = {
      {"tokens", DType::i32, {pieces.offsets.back(), options.voices}, pieces.tokens.data()},
      {"offsets", DType::i64, {std::ssize(pieces.offsets)}, pieces.offsets.data()}};
  write_safetensors(path, tensors, {});
}

}  // namespace linnet
