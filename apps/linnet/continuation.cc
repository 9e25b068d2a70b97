#include "continuation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/fail.h"
#include "checks.h"
#include "data/sound.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/sound.h"
#include "report.h"
#include "run_record.h"
#include "series/paths.h"
#include "series_input.h"

namespace linnet {
namespace {

using Samples = std::vector<float>;

std::int64_t continue_series(const Continuation& wanted) {
  const CommandSeries input = read_series_input("generate", wanted.model, wanted.prompt, "");
  const std::int64_t steps = wanted.length > 0 ? wanted.length : input.horizon();
  const SeriesPaths paths(input, {.samples = 1,
                                  .steps = steps,
                                  .context = context_of("generate", input, 0, steps),
                                  .seed = wanted.sampling.seed,
                                  .temperature = wanted.sampling.temperature,
                                  .threads = wanted.threads});
  const bool timed = input.series.times_go_on();
  std::vector<std::string> cells;
  if (timed) cells.push_back(csv_cell(input.series.time));
  for (const std::string& column : input.series.columns) cells.push_back(csv_cell(column));
  std::string lines = fmt::format("{}\n", fmt::join(cells, ","));
  for (std::int64_t step = 0; step < steps; ++step) {
    cells.clear();
    if (timed) cells.push_back(input.series.time_text(input.series.rows() + step));
    for (std::int64_t column = 0; column < std::ssize(input.series.columns); ++column)
      cells.push_back(fmt::format("{:.7g}", paths.at(0, step, column)));
    lines += fmt::format("{}\n", fmt::join(cells, ","));
  }
  write_file_atomically(wanted.out, lines);
  return steps;
}

/// Steps of whole frames that a model of sound takes, and those to draw.
struct SoundSteps {
  std::int64_t samples = 0;  ///< of a step
  std::int64_t known = 0, drawn = 0;
};

Samples continue_samples(const std::shared_ptr<const Model>& model, const Continuation& wanted,
                         const SoundSteps& steps, const Samples& known) {
  NumberSession session(model, 1, {.threads = wanted.threads});
  const auto each = static_cast<std::size_t>(steps.samples);
  const auto step_at = [&](std::int64_t step) {
    return std::span(known).subspan(static_cast<std::size_t>(step) * each, each);
  };
  Samples drawn(static_cast<std::size_t>(session.targets())), result;
  for (std::int64_t step = 0; step + 1 < steps.known; ++step) session.observe(step_at(step));
  Samples predicted(drawn.size());
  session.step(step_at(steps.known - 1), predicted);
  const double temperature = predicts_means(model->config()) ? 0 : wanted.sampling.temperature;
  for (std::int64_t step = 0; step < steps.drawn; ++step) {
    draw_finite(session, 0, wanted.sampling.seed, drawn, temperature);
    result.insert(result.end(), drawn.begin(), drawn.begin() + steps.samples);
    if (step + 1 < steps.drawn) session.step(std::span(drawn).first(each), predicted);
  }
  return result;
}

Samples continue_codes(const std::shared_ptr<const Model>& model, const Continuation& wanted,
                       const SoundSteps& steps, const Samples& known) {
  const std::int64_t levels = model->config().field_sizes().front();
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < steps.known * steps.samples; ++i)
    tokens.push_back(mu_law_token(known[static_cast<std::size_t>(i)], levels));
  Session session(model, 1, {.threads = wanted.threads});
  session.begin(0, -1, wanted.sampling);
  session.prefill(0, tokens);
  Samples result;
  tokens.resize(static_cast<std::size_t>(steps.samples));
  for (std::int64_t step = 0; step < steps.drawn; ++step) {
    session.step(tokens);
    for (const std::int32_t token : tokens) result.push_back(mu_law_sample(token, levels));
  }
  return result;
}

std::int64_t continue_sound(const std::shared_ptr<const Model>& model, const Continuation& wanted) {
  const ModelConfig& config = model->config();
  const bool codes = config.columns == 0;
  const auto sizes = config.field_sizes();
  if (!config.shifted() || config.classes > 0 || (!codes && !sizes.empty()) ||
      (codes && std::ranges::any_of(sizes, [&](std::int64_t size) { return size != sizes.front(); })) ||
      (!codes && config.target_count() < config.columns))
    fail<UsageError>("generate", "expected a model of the next samples of sound for {}, got another",
                     wanted.out);
  SoundFile file(wanted.prompt);
  const SoundFormat& format = file.format();
  if (const auto columns = columns_of_model(wanted.model)) columns->check("generate", wanted.prompt, format);
  SoundSteps steps{.samples = codes ? std::ssize(sizes) : config.columns};
  if (steps.samples % format.channels != 0)
    fail<UsageError>("generate",
                     "expected a sound whose channels divide the {} samples of a step, got {} in {}",
                     steps.samples, format.channels, wanted.prompt);
  const std::int64_t frames = steps.samples / format.channels,
                     length = wanted.length > 0 ? wanted.length : format.rate;
  if (format.frames < frames)
    fail<UsageError>("generate", "expected at least the {} frames of a step, got {} in {}", frames,
                     format.frames, wanted.prompt);
  steps.drawn = (length + frames - 1) / frames;
  // The last steps, as many as in training, or with learned positions fewer.
  steps.known = std::min(format.frames / frames, config.length - 1);
  if (config.positions == Positions::learned)
    steps.known = std::min(steps.known, config.length - steps.drawn);
  if (steps.known < 1)
    fail<UsageError>("generate", "expected fewer steps than the {} learned positions of the model, got {}",
                     config.length, steps.drawn);
  Samples known(static_cast<std::size_t>(steps.known * steps.samples));
  file.read(format.frames - steps.known * frames, known);
  Samples drawn =
      codes ? continue_codes(model, wanted, steps, known) : continue_samples(model, wanted, steps, known);
  drawn.resize(static_cast<std::size_t>(length * format.channels));
  write_sound(wanted.out, drawn, format.channels, format.rate);
  return length;
}

}  // namespace

bool is_continuation(const ModelConfig& config, const std::string& prompt, const std::string& out) {
  return config.columns > 0 || (!prompt.empty() && extension_of(out) == ".wav");
}

void write_continuation(const std::shared_ptr<const Model>& model, const Continuation& wanted) {
  const bool sound = extension_of(wanted.out) == ".wav";
  if (!sound && extension_of(wanted.out) != ".csv")
    fail<UsageError>(
        "generate",
        "expected --out with a .csv file of a series or a .wav file of sound, got {}; linnet forecast "
        "gives medians and intervals",
        wanted.out.empty() ? "none" : wanted.out);
  if (wanted.prompt.empty())
    fail<UsageError>("generate", "expected --prompt-file with the {} to continue, got none",
                     sound ? "sound" : "series");
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t drawn = sound ? continue_sound(model, wanted) : continue_series(wanted);
  const double seconds = seconds_since(start);
  if (wanted.json)
    print_json({{"out", wanted.out}, {"length", drawn}, {"seconds", seconds}});
  else
    fmt::print("{} {} in {:.2f} s: {}\n", drawn, sound ? "frames" : "rows", seconds, wanted.out);
}

}  // namespace linnet
