#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/random.h"

namespace linnet {

/// Draws music of two voices of synthetic instruments into `samples`, `rate` a second (4,000 … 48,000),
/// within about ±0.5. Every voice plays a random melody of notes of 0.12 … 0.5 s between 110 and 880 Hz, each
/// on one of three instruments: a plucked string (Karplus and Strong, "Digital synthesis of plucked-string
/// and drum timbres", 1983), an organ (six harmonic sines with an attack and a release of 20 ms), and a bell
/// (five inharmonic sines that fade, the higher ones faster). Decided by (random, index of the sample) alone.
void draw_music(std::span<float> samples, std::int64_t rate, const Random& random);

/// Adds noise with a signal-to-noise ratio of `decibels`, measured over all of `samples`: white Gaussian
/// noise with three quarters of the power, and a hum of 50 Hz with its harmonics of 150 and 250 Hz with the
/// rest. Samples that are all 0 stay so.
void add_noise(std::span<float> samples, std::int64_t rate, double decibels, const Random& random);

/// Music for a model that takes noise away.
struct Instruments {
  double seconds = 120;      ///< of training
  double test_seconds = 30;  ///< of testing
  std::int64_t rate = 16000;
  double noise = 6;  ///< signal-to-noise ratio in decibels
  std::uint64_t seed = 1;
};

/// Writes four WAV files into a new or empty folder: clean.wav and noisy.wav for training, clean-test.wav and
/// noisy-test.wav for testing, of different melodies and noise. Where samples of a part would be beyond ±1,
/// both of its files are scaled down by the same factor. Throws UsageError for values outside those
/// above, less than a second or more than ten hours of either part, a ratio outside −60 … 100, and where
/// Linnet was built without libsndfile.
void write_instruments(const std::filesystem::path& folder, const Instruments& instruments);

}  // namespace linnet
