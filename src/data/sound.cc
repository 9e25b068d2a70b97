#include "data/sound.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "data/division.h"
#include "data/files.h"
#include "data/selection.h"
#include "data/windows.h"
#include "io/sound.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t no_levels = 0;  // of raw samples

/// The sounds of a data set, with as many channels each. Their steps are blocks of frames. Frames are stored
/// one after another, so that a step is a frame of `samples` channels.
struct Sounds {
  std::vector<fs::path> files, targets;  ///< targets: of pairs alone, one for each file
  std::vector<std::int64_t> steps;       ///< of each file; what does not fill a step is left out
  std::int64_t block = 1;                ///< frames per step
  std::int64_t samples = 0;              ///< per step
  std::int64_t rate = 0;                 ///< frames per second
};

/// The frames of `steps` steps, in words.
std::string frames_named(std::int64_t steps, std::int64_t block) {
  return block == 1 ? fmt::format("data.length = {} frames", steps)
                    : fmt::format("data.length · data.patch = {} frames", steps * block);
}

/// The files of two keys that belong together.
struct Pairing {
  const char *key, *target_key;
};

/// The target of the same name for each file; in their order where no name is the same.
std::vector<fs::path> in_order_of(const std::vector<fs::path>& files, const std::vector<fs::path>& targets,
                                  const Pairing& pairing) {
  if (files.size() != targets.size())
    fail<UsageError>("data", "expected as many files in {} as in {}, {}, got {}", pairing.target_key,
                     pairing.key, files.size(), targets.size());
  std::vector<fs::path> left = targets, ordered;
  fs::path alone;
  for (const fs::path& file : files) {
    const auto found = std::ranges::find(left, file.filename(), &fs::path::filename);
    if (found == left.end()) {
      alone = file;
      continue;
    }
    ordered.push_back(*found);
    left.erase(found);
  }
  if (ordered.empty()) return targets;
  if (ordered.size() < files.size())
    fail<UsageError>("data",
                     "expected files in {} of the same names as in {}, or all of other names and in the same "
                     "order, got none named {}",
                     pairing.target_key, pairing.key, alone.filename().string());
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

Sounds sounds_of(std::vector<fs::path> files, const std::vector<fs::path>& targets, const Pairing& pairing,
                 std::int64_t length, std::int64_t block) {
  Sounds sounds;
  sounds.block = block;
  sounds.files = std::move(files);
  if (!targets.empty()) sounds.targets = in_order_of(sounds.files, targets, pairing);
  SoundFormat first;
  for (std::size_t i = 0; i < sounds.files.size(); ++i) {
    const SoundFormat format = SoundFile(sounds.files[i]).format();
    if (i == 0) first = format;
    check_alike(sounds.files[0], first, sounds.files[i], format, false);
    if (!targets.empty())
      check_alike(sounds.files[i], format, sounds.targets[i], SoundFile(sounds.targets[i]).format(), true);
    if (format.frames / block < length)
      fail("data", "{}: expected at least {}, got {}", sounds.files[i].string(), frames_named(length, block),
           format.frames);
    sounds.steps.push_back(format.frames / block);
  }
  sounds.samples = first.channels * block;
  sounds.rate = first.rate;
  return sounds;
}

/// Reads whole files piece by piece: throws where a sample is not finite, and gives mean and deviation of
/// each sample of steps 0 … ends[i] − 1 of file i, in steps of `block` frames.
ColumnStatistics scanned(const std::vector<fs::path>& files, const std::vector<std::int64_t>& ends,
                         const Sounds& sounds) {
  constexpr std::int64_t piece = 1 << 16;  // frames
  const auto width = static_cast<std::size_t>(sounds.samples);
  const std::int64_t channels = sounds.samples / sounds.block;
  // Of the differences from the first step, so that the squares of a constant cancel nothing.
  std::vector<double> origin(width), sum(width), squares(width);
  std::size_t known = 0;  // columns of `origin`
  std::vector<float> samples;
  double count = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    SoundFile file(files[i]);
    for (std::int64_t frame = 0; frame < file.format().frames; frame += piece) {
      samples.resize(static_cast<std::size_t>(std::min(piece, file.format().frames - frame) * channels));
      file.read(frame, samples);
      for (std::size_t k = 0; k < samples.size(); ++k) {
        const std::int64_t at = frame * channels + static_cast<std::int64_t>(k);  // in the file's samples
        double sample = samples[k];
        if (!std::isfinite(sample))
          fail("data", "{}: expected samples that are finite, got {} in frame {}", files[i].string(), sample,
               at / channels);
        if (at / sounds.samples >= ends[i]) continue;
        const auto column = static_cast<std::size_t>(at) % width;
        if (column == known) origin[known++] = sample;
        sample -= origin[column];
        sum[column] += sample;
        squares[column] += sample * sample;
      }
    }
    count += static_cast<double>(ends[i]);
  }
  ColumnStatistics result;
  for (std::size_t c = 0; c < width; ++c) {
    const double mean = sum[c] / count;
    result.mean.push_back(origin[c] + mean);
    result.deviation.push_back(std::sqrt(std::max(0.0, squares[c] / count - mean * mean)));
  }
  return result;
}

/// What the parts of the data share.
struct Setting {
  std::int64_t length = 0;
  std::int64_t levels = no_levels;   ///< of μ-law codes
  ColumnStatistics inputs, targets;  ///< of the training part; empty for codes
  std::string split;                 ///< empty where other files are for validation
};

class SoundDataset final : public Dataset {
 public:
  SoundDataset(std::shared_ptr<const Sounds> sounds, Windows windows, std::shared_ptr<const Setting> setting)
      : sounds_(std::move(sounds)), windows_(std::move(windows)), setting_(std::move(setting)) {}

  std::int64_t size() const override { return windows_.size(); }
  std::int64_t length() const override { return setting_->length; }
  std::int64_t vocabulary() const override { return setting_->levels; }
  const std::string& split() const { return setting_->split; }
  SoundFormat format() const { return {sounds_->rate, sounds_->samples / sounds_->block, 0}; }
  std::vector<std::int64_t> fields() const override {
    return raw() ? std::vector<std::int64_t>{}
                 : std::vector(static_cast<std::size_t>(sounds_->samples), setting_->levels);
  }
  std::int64_t columns() const override { return raw() ? sounds_->samples : 0; }
  bool paired() const override { return !sounds_->targets.empty(); }
  ColumnStatistics column_statistics() const override { return setting_->inputs; }
  ColumnStatistics target_statistics() const override {
    return paired() ? setting_->targets : setting_->inputs;
  }

  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    if (raw()) return -1;
    const Window window = windows_[index];
    const auto width = static_cast<std::size_t>(sounds_->samples);
    std::vector<float> samples(static_cast<std::size_t>(length()) * width);
    SoundFile(sounds_->files[window.source]).read(window.begin * sounds_->block, samples);
    for (std::size_t k = 0; k < samples.size(); ++k) {
      tokens[k] = mu_law_token(samples[k], setting_->levels);
      targets[k] = counts(window, k / width) ? tokens[k] : -1;
    }
    return -1;
  }

  void read_values(std::int64_t index, std::span<float> values, std::span<float> targets) const override {
    if (!raw()) return;
    const Window window = windows_[index];
    const auto width = static_cast<std::size_t>(sounds_->samples);
    assert(values.size() == static_cast<std::size_t>(length()) * width && targets.size() == values.size());
    const std::int64_t frame = window.begin * sounds_->block;
    SoundFile(sounds_->files[window.source]).read(frame, values);
    if (paired())
      SoundFile(sounds_->targets[window.source]).read(frame, targets);
    else
      std::ranges::copy(values, targets.begin());
    for (std::size_t k = 0; k < targets.size(); ++k)
      if (!counts(window, k / width)) targets[k] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  bool raw() const { return setting_->levels == no_levels; }
  static bool counts(const Window& window, std::size_t offset) {
    const std::int64_t step = window.begin + static_cast<std::int64_t>(offset);
    return step >= window.counts_from && step < window.end;
  }

  std::shared_ptr<const Sounds> sounds_;
  Windows windows_;
  std::shared_ptr<const Setting> setting_;
};

void check_options(const DataOptions& options) {
  constexpr std::int64_t longest = std::int64_t{1} << 30, most_levels = 256, most_patch = 4096;
  if (options.length < 2 || options.length > longest)
    fail<UsageError>("data", "expected data.length of 2 to {} for sound, got {}", longest, options.length);
  if (options.patch < 1 || options.patch > most_patch)
    fail<UsageError>("data", "expected data.patch of 1 to {}, got {}", most_patch, options.patch);
  if (options.sound != "samples" && options.sound != "mu-law")
    fail<UsageError>("data", "expected data.sound among samples, mu-law, got \"{}\"", options.sound);
  if (options.levels < 2 || options.levels > most_levels)
    fail<UsageError>("data", "expected 2 to {} levels, got {}", most_levels, options.levels);
  if (!options.target.empty() && options.sound != "samples")
    fail<UsageError>("data", "expected data.sound = \"samples\" for pairs of input and target, got \"{}\"",
                     options.sound);
  for (const auto& [key, files, targets] :
       {std::tuple("validation", &options.validation, &options.validation_target),
        std::tuple("test", &options.test, &options.test_target)}) {
    // A part for testing alone has no data.target beside it.
    const bool paired = !options.target.empty() || (options.path.empty() && !targets->empty());
    if (files->empty() && !targets->empty())
      fail<UsageError>("data", "expected data.{} with data.{}_target, got none", key, key);
    if (!files->empty() && paired != !targets->empty())
      fail<UsageError>("data", "expected data.{}_target beside data.{} where data.target makes pairs, got {}",
                       key, key, targets->empty() ? "none" : "one without data.target");
  }
}

/// All steps of each file.
std::vector<Stretch> whole_files(const Sounds& sounds) {
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i < sounds.files.size(); ++i) stretches.push_back({i, 0, sounds.steps[i]});
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
  const auto sounds_named = [&](const Pairing& pairing, const std::string& value,
                                const std::string& targets) {
    return std::make_shared<const Sounds>(sounds_of(
        files_named(pairing.key, value, options.kind),
        targets.empty() ? std::vector<fs::path>{} : files_named(pairing.target_key, targets, options.kind),
        pairing, options.length, options.patch));
  };
  const bool raw = options.sound == "samples";
  auto setting = std::make_shared<Setting>();
  setting->length = options.length;
  setting->levels = raw ? no_levels : options.levels;
  const auto evaluated = [&](std::shared_ptr<const Sounds> of, std::vector<Stretch> stretches) {
    return std::make_unique<SoundDataset>(
        std::move(of), Windows::overlapping(std::move(stretches), options.length), setting);
  };
  const auto own_files = [&](const std::shared_ptr<const Sounds>& own) {
    scanned(own->files, own->steps, *own);
    if (!own->targets.empty()) scanned(own->targets, own->steps, *own);
    return evaluated(own, whole_files(*own));
  };
  Datasets datasets;
  std::shared_ptr<const Sounds> validated, tested;
  if (parts.test && !options.test.empty())
    tested = sounds_named({"data.test", "data.test_target"}, options.test, options.test_target);
  if (tested && options.path.empty() && !parts.training && !parts.validation) {
    datasets.test = own_files(tested);
    return datasets;
  }
  // The training part is read in any case, for its statistics.
  const auto sounds = sounds_named({"data.path", "data.target"}, options.path, options.target);
  if (parts.validation && !options.validation.empty())
    validated = sounds_named({"data.validation", "data.validation_target"}, options.validation,
                             options.validation_target);
  for (const auto& own : {validated, tested})
    if (own)
      check_alike(sounds->files[0], SoundFile(sounds->files[0]).format(), own->files[0],
                  SoundFile(own->files[0]).format(), false);
  std::vector<Stretch> training, validation, test;
  if (!options.validation.empty()) {
    training = whole_files(*sounds);
  } else {
    const std::string split = setting->split = split_of(options);
    for (std::size_t i = 0; i < sounds->files.size(); ++i) {
      const Division division = divide(split, sounds->steps[i], sounds->files[i].string());
      if (division.training < options.length)
        fail("data", "{}: expected a training part of at least {}, got {}", sounds->files[i].string(),
             frames_named(options.length, options.patch), division.training * options.patch);
      training.push_back({i, 0, division.training});
      validation.push_back({i, division.training, division.validation});
      if (division.validation < division.test) test.push_back({i, division.validation, division.test});
    }
  }
  std::vector<std::int64_t> ends;
  for (const Stretch& stretch : training) ends.push_back(stretch.end);
  const ColumnStatistics inputs = scanned(sounds->files, ends, *sounds);
  if (raw) setting->inputs = inputs;
  if (!sounds->targets.empty()) setting->targets = scanned(sounds->targets, ends, *sounds);

  if (parts.training)
    datasets.training =
        std::make_unique<SoundDataset>(sounds, Windows::every(std::move(training), options.length), setting);
  if (parts.validation)
    datasets.validation = validated ? own_files(validated) : evaluated(sounds, std::move(validation));
  if (tested)
    datasets.test = own_files(tested);
  else if (parts.test && !test.empty())
    datasets.test = evaluated(sounds, std::move(test));
  return datasets;
}

std::string sound_split(const Dataset& dataset) {
  const auto* const sound = opened_as<SoundDataset>(dataset);
  return sound == nullptr ? std::string() : sound->split();
}

std::optional<SoundFormat> sound_format(const Dataset& dataset) {
  const auto* const sound = opened_as<SoundDataset>(dataset);
  if (sound == nullptr) return std::nullopt;
  return sound->format();
}

}  // namespace linnet
