#include "data/instruments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/memory.h"
#include "io/file.h"
#include "io/sound.h"

namespace linnet {
namespace {

constexpr int voices = 2;

/// A sine, relative to the fundamental of its note.
struct Partial {
  double ratio = 1, amplitude = 1;
  double fading = 0;  ///< seconds in which it falls to a thousandth; 0: it stays
};

constexpr std::array<Partial, 6> organ = {
    {{1, 0.5, 0}, {2, 0.35, 0}, {3, 0.2, 0}, {4, 0.2, 0}, {6, 0.1, 0}, {8, 0.08, 0}}};
constexpr std::array<Partial, 5> bell = {
    {{1, 0.5, 1.2}, {2, 0.35, 0.9}, {2.76, 0.3, 0.6}, {5.4, 0.15, 0.3}, {8.93, 0.08, 0.15}}};

struct Note {
  double frequency = 440;  ///< in Hz
  double loudness = 1;
};

/// Sines up to 0.45 of the rate, with a linear attack and release at the ends of the note.
void add_partials(std::span<float> samples, std::int64_t rate, const Note& note,
                  std::span<const Partial> partials) {
  const double per_second = static_cast<double>(rate);
  const std::size_t ramp = std::max<std::size_t>(1, static_cast<std::size_t>(rate / 50));
  for (const Partial& partial : partials) {
    const double turns = note.frequency * partial.ratio / per_second;  // per sample
    if (turns > 0.45) continue;
    const double kept = partial.fading > 0 ? 1 - 6.9 / (partial.fading * per_second) : 1;  // ln 1000 = 6.9
    double amplitude = note.loudness * partial.amplitude, phase = 0.75;                    // cos 3π/2 = 0
    for (std::size_t t = 0; t < samples.size(); ++t) {
      const std::size_t edge = std::min({t, samples.size() - 1 - t, ramp});
      const double envelope = static_cast<double>(edge) / static_cast<double>(ramp);
      samples[t] += static_cast<float>(envelope * amplitude * portable_cos_turns(phase));
      amplitude *= kept;
      phase += turns;
      if (phase >= 1) phase -= 1;
    }
  }
}

/// A loop of as many samples as a period, which begins with noise and whose neighbours are averaged again and
/// again. The period of the loop is half a sample longer than its length.
void add_pluck(std::span<float> samples, std::int64_t rate, const Note& note, const Random& random,
               std::uint64_t first) {
  const double period = static_cast<double>(rate) / note.frequency - 0.5;
  std::vector<double> loop(std::max<std::size_t>(2, static_cast<std::size_t>(std::lround(period))));
  for (std::size_t i = 0; i < loop.size(); ++i) loop[i] = 2.0 * random.uniform(first + i) - 1;
  const std::size_t ramp = std::max<std::size_t>(1, static_cast<std::size_t>(rate / 50));
  for (std::size_t t = 0; t < samples.size(); ++t) {
    double& here = loop[t % loop.size()];
    const double envelope =
        static_cast<double>(std::min(samples.size() - 1 - t, ramp)) / static_cast<double>(ramp);
    samples[t] += static_cast<float>(envelope * note.loudness * here);
    here = 0.498 * (here + loop[(t + 1) % loop.size()]);
  }
}

/// Semitone n above 110 Hz, in equal temperament.
double pitch(std::uint64_t n) {
  constexpr std::array<double, 12> ratios = {1.0,
                                             1.0594630943592953,
                                             1.122462048309373,
                                             1.189207115002721,
                                             1.2599210498948732,
                                             1.3348398541700344,
                                             1.4142135623730951,
                                             1.4983070768766815,
                                             1.5874010519681994,
                                             1.681792830507429,
                                             1.7817974362806785,
                                             1.8877486253633868};
  return 110 * static_cast<double>(std::uint64_t{1} << n / 12) * ratios[n % 12];
}

void check(const Instruments& instruments) {
  constexpr double longest = 36000;
  for (const double seconds : {instruments.seconds, instruments.test_seconds})
    if (!(seconds >= 1 && seconds <= longest))
      fail<UsageError>("instruments", "expected 1 to {} seconds, got {}", longest, seconds);
  if (instruments.rate < 4000 || instruments.rate > 48000)
    fail<UsageError>("instruments", "expected a rate of 4000 to 48000 samples a second, got {}",
                     instruments.rate);
  if (!(instruments.noise >= -60 && instruments.noise <= 100))
    fail<UsageError>("instruments", "expected a signal-to-noise ratio of -60 to 100 decibels, got {}",
                     instruments.noise);
}

/// Divides both by the largest of their samples where that is beyond 1: a file would have it cut off.
void scale_to_fit(std::vector<float>& clean, std::vector<float>& noisy) {
  float largest = 1;
  for (const std::vector<float>* sound : {&clean, &noisy})
    for (const float sample : *sound) largest = std::max(largest, std::abs(sample));
  for (std::vector<float>* sound : {&clean, &noisy})
    for (float& sample : *sound) sample /= largest;
}

double power(std::span<const float> samples) {
  double sum = 0;
  for (const float sample : samples) sum += double{sample} * sample;
  return sum / static_cast<double>(std::max<std::size_t>(samples.size(), 1));
}

}  // namespace

void draw_music(std::span<float> samples, std::int64_t rate, const Random& random) {
  // Numbers of a note: each voice and note has a range of its own, larger than the longest loop.
  constexpr std::uint64_t numbers = 1024, notes = std::uint64_t{1} << 32;
  std::ranges::fill(samples, 0.0f);
  for (std::uint64_t voice = 0; voice < voices; ++voice) {
    std::size_t begin = 0;
    for (std::uint64_t n = 0; begin < samples.size(); ++n) {
      const std::uint64_t first = (voice * notes + n) * numbers;
      const double seconds = 0.12 + 0.38 * random.uniform(first);
      const std::size_t length =
          std::min(samples.size() - begin, static_cast<std::size_t>(seconds * static_cast<double>(rate)));
      const Note note{.frequency = pitch(random.below(37, first + 1)),
                      .loudness = 0.12 + 0.13 * random.uniform(first + 2)};
      const std::span<float> part = samples.subspan(begin, length);
      switch (random.below(3, first + 3)) {
        case 0:
          add_pluck(part, rate, note, random, first + 4);
          break;
        case 1:
          add_partials(part, rate, note, organ);
          break;
        default:
          add_partials(part, rate, note, bell);
      }
      begin += length;
    }
  }
}

void add_noise(std::span<float> samples, std::int64_t rate, double decibels, const Random& random) {
  std::vector<float> white(samples.size()), hum(samples.size());
  const double turns = 50 / static_cast<double>(rate);
  for (std::size_t t = 0; t < samples.size(); ++t) {
    white[t] = static_cast<float>(random.normal(t));
    for (const int harmonic : {1, 3, 5}) {
      const double phase = harmonic * turns * static_cast<double>(t);
      hum[t] += static_cast<float>(portable_cos_turns(phase - std::floor(phase)) / harmonic);
    }
  }
  const double of_white = std::sqrt(0.75 / power(white)), of_hum = std::sqrt(0.25 / power(hum));
  for (std::size_t t = 0; t < samples.size(); ++t)
    white[t] = static_cast<float>(of_white * white[t] + of_hum * hum[t]);
  // The two are not quite without correlation.
  const double scale = std::sqrt(power(samples) * std::pow(10, -decibels / 10) / power(white));
  for (std::size_t t = 0; t < samples.size(); ++t) samples[t] += static_cast<float>(scale * white[t]);
}

void write_instruments(const std::filesystem::path& folder, const Instruments& instruments) {
  check(instruments);
  AtomicFolder written(folder, AtomicFolder::Place::new_or_empty);
  std::uint32_t stream = 0;
  for (const auto& [part, seconds] :
       {std::pair("", instruments.seconds), std::pair("-test", instruments.test_seconds)}) {
    const auto frames = static_cast<std::size_t>(seconds * static_cast<double>(instruments.rate));
    constexpr double arrays = 4;  // two of sounds, and two of noise while one of them is made
    require_memory("the music", arrays * sizeof(float) * static_cast<double>(frames));
    std::vector<float> clean(frames);
    draw_music(clean, instruments.rate, Random(instruments.seed, Draw::synthetic_data, stream++));
    std::vector<float> noisy = clean;
    add_noise(noisy, instruments.rate, instruments.noise,
              Random(instruments.seed, Draw::synthetic_data, stream++));
    scale_to_fit(clean, noisy);
    write_sound(written.path() / fmt::format("clean{}.wav", part), clean, 1, instruments.rate);
    write_sound(written.path() / fmt::format("noisy{}.wav", part), noisy, 1, instruments.rate);
  }
  written.commit();
}

}  // namespace linnet
