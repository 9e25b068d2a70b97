// Runs a sound file through a trained model as a stream: every block of samples goes in as soon as it is
// there, and its filtered samples come out.
//   linnet data instruments --out band
//   linnet train audio --data band/noisy.wav --set data.target=band/clean.wav --out runs/audio
//   filter_audio runs/audio band/noisy-test.wav out.wav
#include <sndfile.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "linnet/error.h"
#include "linnet/generation.h"

namespace {

using Sound = std::unique_ptr<SNDFILE, int (*)(SNDFILE*)>;

Sound open(const char* path, int mode, SF_INFO& info) {
  Sound sound(sf_open(path, mode, &info), sf_close);
  if (!sound) throw std::runtime_error(std::string(path) + ": " + sf_strerror(nullptr));
  return sound;
}

void report(std::vector<double>& microseconds, double samples, double seconds_of_sound) {
  double sum = 0;
  for (const double each : microseconds) sum += each;
  std::sort(microseconds.begin(), microseconds.end());
  const auto quantile = [&](double share) {
    return microseconds[static_cast<std::size_t>(share * double(microseconds.size() - 1))];
  };
  std::printf("%.2f s of sound in %.2f s, %.0f times as fast as it plays, %.2f microseconds per sample\n",
              seconds_of_sound, 1e-6 * sum, seconds_of_sound / (1e-6 * sum), sum / samples);
  std::printf("a step takes %.1f microseconds (median), %.1f (p99), %.1f (p99.9), %.1f (largest)\n",
              quantile(0.5), quantile(0.99), quantile(0.999), microseconds.back());
}

}  // namespace

int main(int count, char** arguments) try {
  if (count < 4) return std::fputs("usage: filter_audio MODEL IN OUT.wav\n", stderr), 2;
  const auto model = linnet::Model::load(arguments[1]);
  linnet::NumberSession session(model, /*streams=*/1, {.threads = 1});

  SF_INFO info = {};
  const Sound in = open(arguments[2], SFM_READ, info);
  const auto block = static_cast<std::size_t>(model->config().columns);
  const auto channels = static_cast<std::size_t>(info.channels);
  if (block % channels != 0 || static_cast<std::size_t>(session.targets()) != block)
    throw std::runtime_error("expected a model that gives as many samples as it takes, whole frames of " +
                             std::to_string(channels) + " channels, got one of " + std::to_string(block) +
                             " inputs and " + std::to_string(session.targets()) + " outputs");
  SF_INFO format = {};
  format.samplerate = info.samplerate;
  format.channels = info.channels;
  format.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  const Sound out = open(arguments[3], SFM_WRITE, format);
  sf_command(out.get(), SFC_SET_CLIPPING, nullptr, SF_TRUE);

  using Clock = std::chrono::steady_clock;
  std::vector<float> noisy(block), clean(block);
  std::vector<double> microseconds;
  const auto frames = static_cast<sf_count_t>(block / channels);
  for (sf_count_t read; (read = sf_readf_float(in.get(), noisy.data(), frames)) > 0;) {
    // The last block may be shorter than a step.
    std::fill(noisy.begin() + read * info.channels, noisy.end(), 0.0f);
    const Clock::time_point start = Clock::now();
    session.step(noisy, clean);  // allocates nothing
    microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    if (sf_writef_float(out.get(), clean.data(), read) != read)
      throw std::runtime_error(std::string(arguments[3]) + ": " + sf_strerror(out.get()));
  }
  if (microseconds.empty())
    throw std::runtime_error(std::string(arguments[2]) + ": expected samples, got none");
  const double steps = double(microseconds.size());
  report(microseconds, steps * double(block), steps * double(frames) / info.samplerate);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
