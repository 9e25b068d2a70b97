#include "pieces.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/fail.h"
#include "base/memory.h"
#include "comm/gather.h"
#include "data/midi_pieces.h"
#include "data/token_file.h"
#include "io/file.h"
#include "io/midi.h"
#include "io/png.h"
#include "report.h"

namespace linnet {
namespace {

constexpr std::int64_t steps_per_quarter = 4;

/// The steps [steps, fields] of the prompt's first piece.
std::vector<std::int32_t> prompt_of(const ModelConfig& config, const Pieces& pieces) {
  if (pieces.prompt.empty()) return {};
  const std::vector<std::int64_t> sizes = config.field_sizes();
  if (const std::string extension = extension_of(pieces.prompt); extension == ".mid" || extension == ".midi")
    return read_midi_pieces(
               {pieces.prompt},
               {.voices = std::ssize(sizes),
                .steps_per_quarter = steps_per_quarter,
                .first_pitch = static_cast<std::int32_t>(pieces.first_pitch),
                .last_pitch = static_cast<std::int32_t>(pieces.first_pitch + std::ranges::min(sizes) - 2)},
               false)
        .tokens;
  const TokenFile file(pieces.prompt, sizeof(std::uint16_t), std::ssize(sizes));
  if (file.fields() != std::ssize(sizes))
    fail<UsageError>("generate", "expected {} fields as the model has in {}, got {}", sizes.size(),
                     pieces.prompt, file.fields());
  const std::int64_t steps = file.offsets().empty() ? file.steps() : file.offsets()[1];
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(steps * file.fields()));
  file.read(0, sizes, tokens);
  return tokens;
}

/// Steps of a share of the pieces one after another, those of the prompt before each; `shown`: with their
/// progress.
std::vector<std::int32_t> draw(const std::shared_ptr<const Model>& model, const Pieces& pieces,
                               const std::vector<std::int32_t>& prompt, Share share, bool shown) {
  const std::int64_t count = share.size();
  if (count == 0) return {};
  const auto fields = std::ssize(model->config().field_sizes());
  const std::int64_t steps = std::ssize(prompt) / fields + pieces.length;
  require_memory("the sequences", static_cast<double>(sizeof(std::int32_t)) * static_cast<double>(fields) *
                                      static_cast<double>(count) * static_cast<double>(steps));
  std::vector<std::int32_t> all(static_cast<std::size_t>(count * steps * fields));
  Progress progress;
  for (std::int64_t first = 0; first < count; first += pieces.streams) {
    const std::int64_t here = std::min(pieces.streams, count - first);
    Session session(model, here, {.threads = pieces.threads});
    for (std::int64_t i = 0; i < here; ++i) {
      SamplingOptions sampling = pieces.sampling;
      sampling.seed += static_cast<std::uint64_t>(share.begin + first + i);
      session.begin(i, pieces.label, sampling);
      if (i == 0)
        session.prefill(i, prompt);
      else
        session.fork(i, 0, sampling.seed);
      std::ranges::copy(prompt, all.begin() + (first + i) * steps * fields);
    }
    std::vector<std::int32_t> step(static_cast<std::size_t>(here * fields));
    for (std::int64_t t = 0; t < pieces.length; ++t) {
      session.step(step);
      for (std::int64_t i = 0; i < here; ++i)
        std::copy_n(step.begin() + i * fields, fields,
                    all.begin() + ((first + i + 1) * steps - pieces.length + t) * fields);
      if (shown)
        progress.show(
            fmt::format("{} of {} steps", first * pieces.length + here * (t + 1), count * pieces.length));
    }
  }
  return all;
}

/// A row of pixels for each pitch, low ones below, four columns a step; every voice in a colour of its own.
Image piano_roll(const PianoRoll& roll) {
  constexpr std::int64_t columns_per_step = 4, rows_per_pitch = 6;
  constexpr std::uint8_t colours[][3] = {
      {200, 60, 50}, {225, 150, 30}, {60, 140, 70}, {50, 90, 180}, {120, 70, 150}};
  const std::int64_t steps = std::ssize(roll.pitches) / roll.voices;
  std::int32_t low = 127, high = 0;
  for (const std::int32_t pitch : roll.pitches)
    if (pitch >= 0) {
      low = std::min(low, pitch);
      high = std::max(high, pitch);
    }
  if (low > high) low = high = 60;
  const std::int64_t pitches = high - low + 1;
  Image image;
  image.height = pitches * rows_per_pitch;
  image.width = steps * columns_per_step;
  image.channels = 3;
  image.pixels.assign(static_cast<std::size_t>(image.height * image.width * 3), 255);
  const auto paint = [&](std::int64_t row, std::int64_t column, const std::uint8_t(&colour)[3]) {
    std::copy_n(colour, 3, image.pixels.begin() + (row * image.width + column) * 3);
  };
  constexpr std::uint8_t octave[3] = {235, 235, 235}, quarter[3] = {220, 220, 220};
  for (std::int64_t row = 0; row < image.height; ++row)
    for (std::int64_t column = 0; column < image.width; ++column) {
      const std::int64_t pitch = high - row / rows_per_pitch, step = column / columns_per_step;
      if (pitch % 12 == 0) paint(row, column, octave);
      if (column % columns_per_step == 0 && step % (4 * steps_per_quarter) == 0) paint(row, column, quarter);
    }
  for (std::int64_t step = 0; step < steps; ++step)
    for (std::int64_t voice = 0; voice < roll.voices; ++voice) {
      const std::int32_t pitch = roll.pitches[static_cast<std::size_t>(step * roll.voices + voice)];
      if (pitch < 0) continue;
      for (std::int64_t row = 1; row < rows_per_pitch - 1; ++row)
        for (std::int64_t column = 0; column < columns_per_step; ++column)
          paint((high - pitch) * rows_per_pitch + row, step * columns_per_step + column,
                colours[static_cast<std::size_t>(voice) % std::size(colours)]);
    }
  return image;
}

}  // namespace

void check_pieces(const ModelConfig& config, const Pieces& pieces) {
  const std::string extension = extension_of(pieces.out);
  if (extension != ".safetensors" && extension != ".mid" && extension != ".png")
    fail<UsageError>(
        "generate",
        "expected --out with a name in .safetensors, .mid or .png for a model of several fields, got {}",
        pieces.out.empty() ? "none" : pieces.out);
  if (extension == ".safetensors") return;
  if (pieces.count != 1)
    fail<UsageError>("generate", "expected --count 1 for a {} file, got {}", extension, pieces.count);
  if (extension == ".mid" && std::ssize(config.field_sizes()) > most_midi_voices)
    fail<UsageError>("generate", "expected at most {} fields for a .mid file, got {}", most_midi_voices,
                     config.field_sizes().size());
  for (const std::int64_t size : config.field_sizes())
    if (pieces.first_pitch + size - 2 > 127)
      fail<UsageError>("generate",
                       "expected tokens whose pitches are at most 127, got {} values from pitch {}", size,
                       pieces.first_pitch);
}

void write_pieces(const std::shared_ptr<const Model>& model, const Pieces& pieces, Communicator& ranks) {
  const auto fields = std::ssize(model->config().field_sizes());
  const bool first = ranks.rank() == 0;
  const std::vector<std::int32_t> prompt = prompt_of(model->config(), pieces);
  const std::int64_t steps = std::ssize(prompt) / fields + pieces.length;
  if (!prompt.empty() && model->config().positions == Positions::learned && steps > model->config().length)
    fail<UsageError>("generate",
                     "expected at most {} steps, the model's learned positions, got {} of a prompt and {} of "
                     "--length",
                     model->config().length, steps - pieces.length, pieces.length);
  std::vector<std::int32_t> tokens =
      gather(ranks, draw(model, pieces, prompt, share_of(ranks, pieces.count), first));
  if (!first) return;
  const std::string extension = extension_of(pieces.out);
  if (extension == ".safetensors") {
    std::vector<std::int64_t> offsets;
    for (std::int64_t i = 0; i <= pieces.count; ++i) offsets.push_back(i * steps);
    return write_token_file(pieces.out, tokens, offsets, fields);
  }
  for (std::int32_t& token : tokens)
    token = token == 0 ? -1 : static_cast<std::int32_t>(token - 1 + pieces.first_pitch);
  const PianoRoll roll{fields, tokens};
  if (extension == ".mid")
    write_file_atomically(pieces.out, midi_file(roll, steps_per_quarter, pieces.tempo));
  else
    write_png(pieces.out, piano_roll(roll));
}

}  // namespace linnet
