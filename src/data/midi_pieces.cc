#include "data/midi_pieces.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <span>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/memory.h"
#include "data/files.h"
#include "io/file.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_steps = std::int64_t{1} << 20;

/// A note on the grid of steps.
struct StepNote {
  std::int64_t begin, end;
  std::int64_t first_tick, last_tick;
  std::int32_t pitch;
  std::pair<std::int32_t, std::int32_t> part;  // track and channel
};

std::int64_t nearest_step(std::int64_t tick, std::int64_t ticks_per_quarter, std::int64_t steps_per_quarter) {
  return (2 * tick * steps_per_quarter + ticks_per_quarter) / (2 * ticks_per_quarter);
}

/// The voice of each note, where every part is one; empty where they cannot be. Of two notes of a part at one
/// step, which only the grid brings together, the later one sounds.
std::vector<std::int64_t> voices_of_parts(std::vector<StepNote>& notes, std::int64_t voices) {
  struct Part {
    std::int64_t count = 0, pitches = 0, voice = 0;
    StepNote* last = nullptr;
    double mean() const { return static_cast<double>(pitches) / static_cast<double>(count); }
  };
  std::map<std::pair<std::int32_t, std::int32_t>, Part> parts;
  for (StepNote& note : notes) {
    Part& part = parts[note.part];
    if (std::ssize(parts) > voices) return {};
    if (part.last != nullptr && note.first_tick < part.last->last_tick) return {};
    part.last = &note;
    ++part.count;
    part.pitches += note.pitch;
  }
  std::vector<Part*> sorted;
  for (auto& [name, part] : parts) {
    sorted.push_back(&part);
    part.last = nullptr;
  }
  std::ranges::stable_sort(sorted, [](const Part* x, const Part* y) { return x->mean() > y->mean(); });
  for (std::size_t i = 0; i < sorted.size(); ++i) sorted[i]->voice = static_cast<std::int64_t>(i);
  std::vector<std::int64_t> result;
  for (StepNote& note : notes) {
    Part& part = parts[note.part];
    if (part.last != nullptr) part.last->end = std::min(part.last->end, note.begin);
    part.last = &note;
    result.push_back(part.voice);
  }
  return result;
}

/// Brings the notes into the order of their steps, at one step from high to low. Of one pitch there is one,
/// the longest.
void sort_by_steps(std::vector<StepNote>& notes) {
  std::ranges::stable_sort(notes, [](const StepNote& x, const StepNote& y) {
    if (x.begin != y.begin) return x.begin < y.begin;
    return x.pitch != y.pitch ? x.pitch > y.pitch : x.end > y.end;
  });
  const auto same = [](const StepNote& x, const StepNote& y) {
    return x.begin == y.begin && x.pitch == y.pitch;
  };
  notes.erase(std::unique(notes.begin(), notes.end(), same), notes.end());
}

struct Voice {
  std::int64_t end = 0;
  std::int32_t pitch = -1;
};

/// How far a note lies from the last one of a voice.
std::int64_t distance(const StepNote& note, const Voice& voice) {
  constexpr std::int64_t octave = 12;  // to a voice that has not sounded yet
  return voice.pitch < 0 ? octave : std::abs(voice.pitch - note.pitch);
}

/// The voices, −1 for none, of notes that begin at one step, from high to low. Higher notes go to voices of
/// lower indices. Of the ways in which the most notes find a free voice it is the one with the least sum of
/// distances.
std::vector<std::int64_t> voices_of_chord(std::span<const StepNote> notes, const std::vector<Voice>& all) {
  constexpr std::int64_t without = 1 << 20;  // the distance of a note without a voice
  std::vector<std::int64_t> free;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].end <= notes.front().begin) free.push_back(static_cast<std::int64_t>(i));
  // least(n, v): the least sum for the notes from n on and the free voices from v on.
  const std::size_t width = free.size() + 1;
  std::vector<std::int64_t> sums((notes.size() + 1) * width);
  const auto least = [&](std::size_t n, std::size_t v) -> std::int64_t& { return sums[n * width + v]; };
  const auto taken = [&](std::size_t n, std::size_t v) {
    return distance(notes[n], all[static_cast<std::size_t>(free[v])]) + least(n + 1, v + 1);
  };
  for (std::size_t n = notes.size(); n-- > 0;)
    for (std::size_t v = width; v-- > 0;) {
      least(n, v) = without + least(n + 1, v);
      if (v < free.size()) least(n, v) = std::min({taken(n, v), least(n, v + 1), least(n, v)});
    }
  std::vector<std::int64_t> result;
  for (std::size_t n = 0, v = 0; n < notes.size();) {
    if (v < free.size() && least(n, v) == taken(n, v)) {
      result.push_back(free[v++]);
      ++n;
    } else if (v < free.size() && least(n, v) == least(n, v + 1)) {
      ++v;
    } else {
      result.push_back(-1);
      ++n;
    }
  }
  return result;
}

/// The voices of the notes of all chords, each after the one before.
std::vector<std::int64_t> nearest_voices(const std::vector<StepNote>& notes, std::int64_t voices) {
  std::vector<Voice> all(static_cast<std::size_t>(voices));
  std::vector<std::int64_t> result;
  for (auto begin = notes.begin(); begin != notes.end();) {
    const auto end =
        std::find_if(begin, notes.end(), [&](const StepNote& note) { return note.begin != begin->begin; });
    const std::vector<std::int64_t> chord = voices_of_chord({begin, end}, all);
    for (std::size_t i = 0; i < chord.size(); ++i, ++begin)
      if (chord[i] >= 0) all[static_cast<std::size_t>(chord[i])] = {begin->end, begin->pitch};
    result.insert(result.end(), chord.begin(), chord.end());
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

bool is_midi_name(const fs::path& path) {
  const std::string extension = extension_of(path.string());
  return extension == ".mid" || extension == ".midi";
}

/// The files in a folder and in those inside, but for linked ones, by name.
std::vector<fs::path> midi_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error))
    if (is_midi_name(at->path()) && is_file_of_folder(*at)) files.push_back(at->path());
  if (error) fail("midi", "cannot read the folder {}: {}", folder.string(), error.message());
  if (files.empty()) fail("midi", "expected files called .mid or .midi in {}, got none", folder.string());
  std::ranges::sort(files);
  return files;
}

/// The files that the paths name. Throws Error for those that do not exist.
std::vector<fs::path> midi_files(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    std::error_code none;
    if (!fs::exists(path, none)) fail("midi", "expected a file or a folder {}, got none", path.string());
    const bool folder = fs::is_directory(path, none);
    const std::vector<fs::path> named = folder ? midi_files_in(path) : std::vector<fs::path>{path};
    files.insert(files.end(), named.begin(), named.end());
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
    all.push_back({begin, end, note.begin, note.end, note.pitch, {note.track, note.channel}});
    last = std::max(last, end);
  }
  if (all.empty())
    fail("midi", "{}: expected notes of pitches {} … {}, got {}", origin, options.first_pitch,
         options.last_pitch, outside > 0 ? "others" : "none");
  const std::int64_t first = all.front().begin / options.steps_per_quarter * options.steps_per_quarter;
  if (last - first > most_steps)
    fail("midi", "{}: expected a piece of at most {} steps, got {}", origin, most_steps, last - first);

  std::vector<std::int64_t> voices = voices_of_parts(all, options.voices);
  if (voices.empty()) {
    sort_by_steps(all);
    voices = nearest_voices(all, options.voices);
  }
  const std::size_t before = pieces.tokens.size(),
                    after = before + static_cast<std::size_t>((last - first) * options.voices);
  // A vector that grows is in memory twice.
  if (after > pieces.tokens.capacity())
    require_memory("the pieces", 2.0 * sizeof(std::int32_t) * static_cast<double>(after));
  pieces.tokens.resize(after);
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
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const Error& error) {
      if (!skip) throw;
      pieces.left_out.emplace_back(error.what());
    }
  }
  if (pieces.offsets.empty())
    fail("midi", "expected a piece in one file at least, got none in {}; the first: {}",
         pieces.left_out.size(), pieces.left_out.front());
  return pieces;
}

}  // namespace linnet
