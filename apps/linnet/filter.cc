#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "io/file.h"
#include "io/sound.h"
#include "linnet/generation.h"
#include "metrics_file.h"
#include "outputs.h"
#include "report.h"
#include "run_record.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, data, out;
  bool json = false;
  int threads = 0;
};

void check_model(const ModelConfig& config) {
  if (config.objective != Objective::same_step || config.columns == 0 || !config.field_sizes().empty() ||
      config.classes > 0 || config.target_count() != config.columns)
    fail<UsageError>("filter",
                     "expected a model of as many samples of sound as it takes (model.objective = "
                     "\"same-step\"), got another");
}

/// Frames of a step of the model. Throws UsageError for sound that the model cannot take.
std::int64_t frames_of_step(const ModelConfig& config, const Arguments& arguments,
                            const SoundFormat& format) {
  if (const auto columns = columns_of_model(arguments.model))
    columns->check("filter", arguments.data, format);
  if (config.columns % format.channels != 0)
    fail<UsageError>("filter",
                     "expected a sound whose channels divide the {} samples of a step, got {} in {}",
                     config.columns, format.channels, arguments.data);
  const std::int64_t frames = config.columns / format.channels;
  if (config.positions == Positions::learned && format.frames > config.length * frames)
    fail<UsageError>("filter",
                     "expected at most {} frames for the {} learned positions of the model, got {} in {}",
                     config.length * frames, config.length, format.frames, arguments.data);
  return frames;
}

void run(const Arguments& arguments) {
  check_outputs("filter", {{"--out", arguments.out}},
                {{"the model's", arguments.model}, {"--data", arguments.data}});
  if (extension_of(arguments.out) != ".wav")
    fail<UsageError>("filter", "expected --out with a .wav file, got {}", arguments.out);
  const std::shared_ptr<const Model> model = Model::load(arguments.model);
  note_better_evaluation(arguments.model);
  check_model(model->config());
  SoundFile file(arguments.data);
  const SoundFormat format = file.format();
  const std::int64_t step_frames = frames_of_step(model->config(), arguments, format);
  NumberSession session(model, 1, {.threads = arguments.threads});
  SoundWriter writer(arguments.out, format.channels, format.rate);
  const auto step = static_cast<std::size_t>(model->config().columns);
  const std::int64_t piece_steps = std::max<std::int64_t>(65536 / model->config().columns, 1);
  std::vector<float> in(static_cast<std::size_t>(piece_steps) * step), out(in.size());
  const auto start = std::chrono::steady_clock::now();
  Progress progress;
  for (std::int64_t frame = 0; frame < format.frames;) {
    const std::int64_t frames = std::min(piece_steps * step_frames, format.frames - frame);
    const auto samples = static_cast<std::size_t>(frames * format.channels);
    file.read(frame, std::span(in).first(samples));
    // The last step may be longer than what is left.
    std::fill(in.begin() + static_cast<std::ptrdiff_t>(samples), in.end(), 0.0f);
    for (std::size_t at = 0; at < samples; at += step)
      session.step(std::span(in).subspan(at, step), std::span(out).subspan(at, step));
    writer.write(std::span(out).first(samples));
    frame += frames;
    progress.show(fmt::format("{} of {} frames", frame, format.frames));
  }
  writer.commit();
  const double seconds = seconds_since(start);
  if (arguments.json)
    print_json({{"out", arguments.out}, {"length", format.frames}, {"seconds", seconds}});
  else
    fmt::print("{} frames, {:.2f} s of sound, in {:.2f} s: {}\n", format.frames,
               static_cast<double>(format.frames) / static_cast<double>(format.rate), seconds, arguments.out);
}

}  // namespace

void add_filter(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("filter", "Run sound through a model of inputs and outputs");
  command.footer(
      "The sound has the rate and the channels of the data of the run.\n"
      "Example: linnet filter runs/audio --data band/noisy-test.wav --out clean.wav");
  command.add_option("model", arguments->model, "folder of a model or of a run, trained as \"same-step\"")
      .required();
  command.add_option("--data", arguments->data, "sound file (WAV, FLAC and others)").required();
  command.add_option("--out", arguments->out, "WAV file for the outputs").required();
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
