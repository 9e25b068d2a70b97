#include "data/sound.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "data/division.h"
#include "data/files.h"
#include "data/windows.h"
#include "io/sound.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t no_levels = 0;  // of raw samples

/// The sounds of a data set, with as many channels each.
struct Sounds {
  std::vector<fs::path> files, targets;  ///< targets: of pairs alone, one for each file
  std::vector<std::int64_t> frames;
  std::int64_t channels = 0;
};

/// The same name for each file, in any order, or else the same order.
std::vector<fs::path> in_order_of(const std::vector<fs::path>& files, const std::vector<fs::path>& targets) {
  if (files.size() != targets.size())
    fail<UsageError>("data", "expected as many files in data.target as in data.path, {}, got {}",
                     files.size(), targets.size());
  std::vector<fs::path> ordered;
  for (const fs::path& file : files) {
    const auto same_name = [&](const fs::path& target) { return target.filename() == file.filename(); };
    if (std::ranges::count_if(targets, same_name) != 1) return targets;
    ordered.push_back(*std::ranges::find_if(targets, same_name));
  }
  return ordered;
}

/// Throws where two sounds that belong together differ.
void check_alike(const fs::path& file, const SoundFormat& format, const fs::path& other,
                 const SoundFormat& of_other, bool lengths_too) {
  const auto check = [&](const char* what, std::int64_t expected, std::int64_t got) {
    if (expected != got)
      fail("data", "expected sounds of one {}, got {} of {} and {} of {}", what, expected, file.string(), got,
           other.string());
  };
  check("rate in frames per second", format.rate, of_other.rate);
  check("number of channels", format.channels, of_other.channels);
  if (lengths_too) check("number of frames", format.frames, of_other.frames);
}

Sounds sounds_of(std::vector<fs::path> files, const std::vector<fs::path>& targets, std::int64_t length) {
  Sounds sounds;
  sounds.files = std::move(files);
  if (!targets.empty()) sounds.targets = in_order_of(sounds.files, targets);
  SoundFormat first;
  for (std::size_t i = 0; i < sounds.files.size(); ++i) {
    const SoundFormat format = SoundFile(sounds.files[i]).format();
    if (i == 0) first = format;
    check_alike(sounds.files[0], first, sounds.files[i], format, false);
    if (!targets.empty())
      check_alike(sounds.files[i], format, sounds.targets[i], SoundFile(sounds.targets[i]).format(), true);
    if (format.frames < length)
      fail("data", "{}: expected at least data.length = {} frames, got {}", sounds.files[i].string(), length,
           format.frames);
    sounds.frames.push_back(format.frames);
  }
  sounds.channels = first.channels;
  return sounds;
}

/// Reads whole files piece by piece: throws where a sample is not finite, and gives mean and deviation of
/// frames 0 … ends[i] − 1 of file i.
ColumnStatistics scanned(const std::vector<fs::path>& files, const std::vector<std::int64_t>& ends,
                         std::int64_t channels) {
  constexpr std::int64_t piece = 1 << 16;
  const auto width = static_cast<std::size_t>(channels);
  std::vector<double> sum(width), squares(width);
  std::vector<float> samples;
  double count = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    SoundFile file(files[i]);
    for (std::int64_t frame = 0; frame < file.format().frames; frame += piece) {
      samples.resize(static_cast<std::size_t>(std::min(piece, file.format().frames - frame)) * width);
      file.read(frame, samples);
      for (std::size_t k = 0; k < samples.size(); ++k) {
        const std::int64_t at = frame + static_cast<std::int64_t>(k / width);
        const double sample = samples[k];
        if (!std::isfinite(sample))
          fail("data", "{}: expected samples that are finite, got {} in frame {}", files[i].string(), sample,
               at);
        if (at >= ends[i]) continue;
        sum[k % width] += sample;
        squares[k % width] += sample * sample;
      }
    }
    count += static_cast<double>(ends[i]);
  }
  ColumnStatistics result;
  for (std::size_t c = 0; c < width; ++c) {
    const double mean = sum[c] / count;
    result.mean.push_back(mean);
    result.deviation.push_back(std::sqrt(std::max(0.0, squares[c] / count - mean * mean)));
  }
  return result;
}

/// What the parts of the data share.
struct Setting {
  std::int64_t length = 0;
  std::int64_t levels = no_levels;   ///< of μ-law codes
  ColumnStatistics inputs, targets;  ///< of the training part; empty for codes
};

class SoundDataset final : public Dataset {
 public:
  SoundDataset(std::shared_ptr<const Sounds> sounds, Windows windows, std::shared_ptr<const Setting> setting)
      : sounds_(std::move(sounds)), windows_(std::move(windows)), setting_(std::move(setting)) {}

  std::int64_t size() const override { return windows_.size(); }
  std::int64_t length() const override { return setting_->length; }
  std::int64_t vocabulary() const override { return setting_->levels; }
  std::vector<std::int64_t> fields() const override {
    return raw() ? std::vector<std::int64_t>{}
                 : std::vector(static_cast<std::size_t>(sounds_->channels), setting_->levels);
  }
  std::int64_t columns() const override { return raw() ? sounds_->channels : 0; }
  bool paired() const override { return !sounds_->targets.empty(); }
  ColumnStatistics column_statistics() const override { return setting_->inputs; }
  ColumnStatistics target_statistics() const override {
    return paired() ? setting_->targets : setting_->inputs;
  }

  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    if (raw()) return -1;
    const Window window = windows_[index];
    const auto width = static_cast<std::size_t>(sounds_->channels);
    std::vector<float> samples(static_cast<std::size_t>(length()) * width);
    SoundFile(sounds_->files[window.source]).read(window.begin, samples);
    for (std::size_t k = 0; k < samples.size(); ++k) {
      tokens[k] = mu_law_token(samples[k], setting_->levels);
      targets[k] = counts(window, k / width) ? tokens[k] : -1;
    }
    return -1;
  }

  void read_values(std::int64_t index, std::span<float> values, std::span<float> targets) const override {
    if (!raw()) return;
    const Window window = windows_[index];
    const auto width = static_cast<std::size_t>(sounds_->channels);
    assert(values.size() == static_cast<std::size_t>(length()) * width && targets.size() == values.size());
    SoundFile(sounds_->files[window.source]).read(window.begin, values);
    if (paired())
      SoundFile(sounds_->targets[window.source]).read(window.begin, targets);
    else
      std::ranges::copy(values, targets.begin());
    for (std::size_t k = 0; k < targets.size(); ++k)
      if (!counts(window, k / width)) targets[k] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  bool raw() const { return setting_->levels == no_levels; }
  static bool counts(const Window& window, std::size_t frame) {
    const std::int64_t step = window.begin + static_cast<std::int64_t>(frame);
    return step >= window.counts_from && step < window.end;
  }

  std::shared_ptr<const Sounds> sounds_;
  Windows windows_;
  std::shared_ptr<const Setting> setting_;
};

void check_options(const DataOptions& options) {
  constexpr std::int64_t longest = std::int64_t{1} << 30, most_levels = 256;
  if (options.length < 2 || options.length > longest)
    fail<UsageError>("data", "expected data.length of 2 to {} for sound, got {}", longest, options.length);
  if (options.sound != "samples" && options.sound != "mu-law")
    fail<UsageError>("data", "expected data.sound among samples, mu-law, got \"{}\"", options.sound);
  if (options.levels < 2 || options.levels > most_levels)
    fail<UsageError>("data", "expected 2 to {} levels, got {}", most_levels, options.levels);
  if (!options.target.empty() && options.sound != "samples")
    fail<UsageError>("data", "expected data.sound = \"samples\" for pairs of input and target, got \"{}\"",
                     options.sound);
  if (!options.target.empty() && !(options.validation.empty() && options.test.empty()))
    fail<UsageError>("data",
                     "expected data.split for pairs of input and target, got files for one part alone");
}

/// All frames of each file.
std::vector<Stretch> whole_files(const Sounds& sounds) {
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i < sounds.files.size(); ++i) stretches.push_back({i, 0, sounds.frames[i]});
  return stretches;
}

}  // namespace

std::int32_t mu_law_token(float sample, std::int64_t levels) {
  const double mu = static_cast<double>(levels - 1), x = std::clamp(double{sample}, -1.0, 1.0);
  const double f = std::copysign(std::log1p(mu * std::abs(x)) / std::log1p(mu), x);
  return static_cast<std::int32_t>(std::floor(mu * (f + 1) / 2 + 0.5));
}

float mu_law_sample(std::int32_t token, std::int64_t levels) {
  const double mu = static_cast<double>(levels - 1), f = 2 * token / mu - 1;
  return static_cast<float>(std::copysign(std::expm1(std::abs(f) * std::log1p(mu)) / mu, f));
}

Datasets open_sound(const DataOptions& options, const Parts& parts) {
  check_options(options);
  // The training part is read in any case, for its statistics.
  const auto files = [&](const char* key, const std::string& value) {
    return files_named(key, value, options.kind);
  };
  const auto sounds = std::make_shared<const Sounds>(
      sounds_of(files("data.path", options.path),
                options.target.empty() ? std::vector<fs::path>{} : files("data.target", options.target),
                options.length));
  std::vector<Stretch> training, validation, test;
  const std::string split = split_of(options);
  if (!options.validation.empty()) {
    training = whole_files(*sounds);
  } else {
    for (std::size_t i = 0; i < sounds->files.size(); ++i) {
      const Division division = divide(split, sounds->frames[i], sounds->files[i].string());
      if (division.training < options.length)
        fail("data", "{}: expected a training part of at least data.length = {} frames, got {}",
             sounds->files[i].string(), options.length, division.training);
      training.push_back({i, 0, division.training});
      validation.push_back({i, division.training, division.validation});
      if (division.validation < division.test) test.push_back({i, division.validation, division.test});
    }
  }
  const bool raw = options.sound == "samples";
  auto setting = std::make_shared<Setting>();
  setting->length = options.length;
  setting->levels = raw ? no_levels : options.levels;
  std::vector<std::int64_t> ends;
  for (const Stretch& stretch : training) ends.push_back(stretch.end);
  const ColumnStatistics inputs = scanned(sounds->files, ends, sounds->channels);
  if (raw) setting->inputs = inputs;
  if (!sounds->targets.empty()) setting->targets = scanned(sounds->targets, ends, sounds->channels);

  const auto evaluated = [&](std::shared_ptr<const Sounds> of, std::vector<Stretch> stretches) {
    return std::make_unique<SoundDataset>(
        std::move(of), Windows::overlapping(std::move(stretches), options.length), setting);
  };
  const auto own_files = [&](const char* key, const std::string& value) {
    const auto own = std::make_shared<const Sounds>(sounds_of(files(key, value), {}, options.length));
    check_alike(sounds->files[0], SoundFile(sounds->files[0]).format(), own->files[0],
                SoundFile(own->files[0]).format(), false);
    scanned(own->files, own->frames, own->channels);
    return evaluated(own, whole_files(*own));
  };
  Datasets datasets;
  if (parts.training)
    datasets.training =
        std::make_unique<SoundDataset>(sounds, Windows::every(std::move(training), options.length), setting);
  if (parts.validation)
    datasets.validation = options.validation.empty() ? evaluated(sounds, std::move(validation))
                                                     : own_files("data.validation", options.validation);
  if (parts.test && !options.test.empty())
    datasets.test = own_files("data.test", options.test);
  else if (parts.test && !test.empty())
    datasets.test = evaluated(sounds, std::move(test));
  return datasets;
}

}  // namespace linnet
