#include "data/images.h"

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/random.h"
#include "data/cifar.h"
#include "data/digits.h"
#include "data/idx.h"
#include "data/mnist_files.h"

namespace linnet {
namespace {

constexpr std::int64_t digit_classes = 10;

std::vector<std::int16_t> wide(const std::vector<std::uint8_t>& labels) {
  return {labels.begin(), labels.end()};
}

std::unique_ptr<ImageDataset> open_part(const DataOptions& options, const MnistFiles& files) {
  const std::filesystem::path path = find_mnist_file(options.path, files.images);
  IdxArray images = read_idx(path);
  if (images.shape.size() != 3 || images.values.empty())
    fail("data", "{}: expected images of shape [count, height, width], got {}", path.string(),
         to_string(images.shape));
  const std::int64_t count = images.shape[0], height = images.shape[1], width = images.shape[2];
  const std::int64_t size = options.size;
  if (size > std::min(height, width))
    fail<UsageError>("data", "{}: expected a size of at most {}, that of the images, or 0, got {}",
                     path.string(), std::min(height, width), size);
  const bool whole = size == 0 || (size == height && size == width);
  const ImageShape shape = whole ? ImageShape{height, width} : ImageShape{size, size};
  check_image_options(options, shape);

  IdxArray labels;
  if (options.labels) {
    const std::filesystem::path labels_path = find_mnist_file(options.path, files.labels);
    labels = read_idx(labels_path);
    if (labels.shape != Shape{count})
      fail("data", "{}: expected labels of shape [{}] for as many images, got {}", labels_path.string(),
           count, to_string(labels.shape));
    if (const std::uint8_t most = *std::ranges::max_element(labels.values); most >= digit_classes)
      fail("data", "{}: expected labels from 0 to {}, got {}", labels_path.string(), digit_classes - 1, most);
  }
  if (whole)
    return std::make_unique<ImageDataset>(std::move(images.values), wide(labels.values), digit_classes, shape,
                                          options.levels);
  Context context;
  return std::make_unique<ImageDataset>(scale_down(context, images.values, count, height, width, size),
                                        wide(labels.values), digit_classes, shape, options.levels);
}

std::unique_ptr<ImageDataset> open_cifar_part(const DataOptions& options, CifarBatch batch) {
  const std::int64_t size = options.size == 0 ? cifar_size : options.size;
  if (size < cifar_size) {
    Context context;
    batch.planes =
        scale_down(context, batch.planes, batch.size() * cifar_channels, cifar_size, cifar_size, size);
  }
  if (!options.labels) batch.labels.clear();
  return std::make_unique<ImageDataset>(interleave(batch.planes, cifar_channels, size * size),
                                        wide(batch.labels), cifar_classes,
                                        ImageShape{size, size, cifar_channels}, options.levels);
}

/// The training batches as one.
CifarBatch read_cifar_training(std::span<const std::filesystem::path> files) {
  CifarBatch training = read_cifar(files.front());
  const std::int64_t first = training.size();
  for (const std::filesystem::path& path : files.subspan(1)) {
    const CifarBatch batch = read_cifar(path);
    if (batch.size() != first)
      fail("data", "{}: expected {} images as in data_batch_1.bin, got {}", path.string(), first,
           batch.size());
    training.planes.insert(training.planes.end(), batch.planes.begin(), batch.planes.end());
    training.labels.insert(training.labels.end(), batch.labels.begin(), batch.labels.end());
  }
  return training;
}

/// The parts of data with files for training and files for testing, which the two functions read. No file is
/// read that only parts need that are not wanted.
template <class ReadTraining, class ReadTest>
Datasets open_with_test_files(const DataOptions& options, const Parts& parts,
                              const ReadTraining& read_training, const ReadTest& read_test) {
  const bool holds_out = options.held_out > 0;
  Datasets datasets;
  if (parts.training || (parts.validation && holds_out)) {
    std::unique_ptr<ImageDataset> training = read_training();
    if (holds_out) {
      if (options.held_out >= training->size())
        fail<UsageError>("data", "{}: expected data.held_out of less than the {} images for training, got {}",
                         options.path, training->size(), options.held_out);
      std::unique_ptr<ImageDataset> held_out = training->take_last(options.held_out);
      if (parts.validation) datasets.validation = std::move(held_out);
    }
    if (parts.training) datasets.training = std::move(training);
  }
  if (parts.validation && !holds_out) datasets.validation = read_test();
  if (parts.test && (holds_out || !parts.validation)) datasets.test = read_test();
  return datasets;
}

}  // namespace

void check_image_options(const DataOptions& options, const ImageShape& image) {
  if (options.levels < 2 || options.levels > 256)
    fail<UsageError>("data", "expected 2 to 256 levels, got {}", options.levels);
  const auto [height, width, channels] = image;
  if (const std::int64_t length = height * width * channels; options.length != 0 && options.length != length)
    fail<UsageError>("data", "expected length 0 or {} for images of {} × {}{}, got {}", length, height, width,
                     channels == 1 ? "" : fmt::format(" × {}", channels), options.length);
}

std::filesystem::path find_mnist_file(const std::filesystem::path& folder, const std::string& name) {
  std::string dotted = name;
  dotted[name.rfind("-idx")] = '.';
  for (const std::string& candidate : {name, name + ".gz", dotted, dotted + ".gz"}) {
    std::error_code ignored;
    if (std::filesystem::exists(folder / candidate, ignored)) return folder / candidate;
  }
  fail("data", "expected {} or {}.gz in {}, got neither", name, name, folder.string());
}

ImageDataset::ImageDataset(std::vector<std::uint8_t> pixels, std::vector<std::int16_t> labels,
                           std::int64_t classes, const ImageShape& image, std::int64_t levels,
                           std::vector<std::string> names)
    : pixels_(std::move(pixels)),
      labels_(std::move(labels)),
      classes_(classes),
      image_(image),
      levels_(levels),
      names_(std::move(names)) {
  assert(static_cast<std::int64_t>(pixels_.size()) % length() == 0);
  assert(labels_.empty() || static_cast<std::int64_t>(labels_.size()) == size());
}

std::unique_ptr<ImageDataset> ImageDataset::take_last(std::int64_t count) {
  assert(count >= 1 && count < size());
  const auto taken_from = [](auto& all, std::int64_t numbers) {
    std::remove_reference_t<decltype(all)> taken(all.end() - numbers, all.end());
    all.erase(all.end() - numbers, all.end());
    return taken;
  };
  return std::make_unique<ImageDataset>(taken_from(pixels_, count * length()),
                                        taken_from(labels_, labels_.empty() ? 0 : count), classes_, image_,
                                        levels_, names_);
}

std::int64_t ImageDataset::read(std::int64_t index, std::span<std::int32_t> tokens,
                                std::span<std::int32_t> targets) const {
  assert(index >= 0 && index < size());
  const std::uint8_t* pixels = pixels_.data() + index * length();
  for (std::size_t i = 0; i < static_cast<std::size_t>(length()); ++i)
    tokens[i] = targets[i] = token_of_pixel(pixels[i], levels_);
  return labels_.empty() ? -1 : labels_[static_cast<std::size_t>(index)];
}

std::vector<std::uint8_t> scale_down(Context& context, std::span<const std::uint8_t> pixels,
                                     std::int64_t count, std::int64_t height, std::int64_t width,
                                     std::int64_t size) {
  assert(size >= 1 && size <= height && size <= width);
  std::vector<std::uint8_t> result(static_cast<std::size_t>(count * size * size));
  // In units of 1/size of an old pixel, new pixel i covers [i · old, (i + 1) · old), old pixel s [s · size,
  // (s + 1) · size).
  const auto overlap = [size](std::int64_t i, std::int64_t s, std::int64_t old) {
    return std::min((i + 1) * old, (s + 1) * size) - std::max(i * old, s * size);
  };
  parallel_for(context, count, [&](std::int64_t image) {
    const std::uint8_t* source = pixels.data() + image * height * width;
    for (std::int64_t y = 0; y < size; ++y) {
      for (std::int64_t x = 0; x < size; ++x) {
        std::int64_t sum = 0;
        for (std::int64_t sy = y * height / size; sy * size < (y + 1) * height; ++sy)
          for (std::int64_t sx = x * width / size; sx * size < (x + 1) * width; ++sx)
            sum += overlap(y, sy, height) * overlap(x, sx, width) * source[sy * width + sx];
        const std::int64_t area = height * width;
        result[static_cast<std::size_t>((image * size + y) * size + x)] =
            static_cast<std::uint8_t>((sum + area / 2) / area);
      }
    }
  });
  return result;
}

Datasets open_digits(const DataOptions& options, const Parts& parts) {
  const std::int64_t size = options.size == 0 ? 16 : options.size;
  if (size < 8 || size > 64) fail<UsageError>("data", "expected a size of 8 to 64 pixels, got {}", size);
  check_image_options(options, {size, size});
  Context context;
  const auto draw = [&](std::int64_t count, std::uint32_t stream) {
    require_memory("the digits", static_cast<double>(count * size * size));
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * size * size));
    std::vector<std::uint8_t> labels(static_cast<std::size_t>(count));
    draw_digits(context, pixels, labels, size,
                Random(static_cast<std::uint64_t>(options.seed), Draw::synthetic_data, stream));
    if (!options.labels) labels.clear();
    return std::make_unique<ImageDataset>(std::move(pixels), wide(labels), digit_classes,
                                          ImageShape{size, size}, options.levels);
  };
  Datasets datasets;
  if (parts.training) datasets.training = draw(options.examples, 0);
  if (parts.validation) datasets.validation = draw(std::max<std::int64_t>(1, options.examples / 10), 1);
  return datasets;
}

Datasets open_mnist(const DataOptions& options, const Parts& parts) {
  if (options.path.empty()) fail<UsageError>("data", "expected the path of a folder of IDX files, got none");
  if (options.size < 0) fail<UsageError>("data", "expected a size of at least 0, got {}", options.size);
  Datasets datasets = open_with_test_files(
      options, parts, [&] { return open_part(options, mnist_training); },
      [&] { return open_part(options, mnist_test); });
  const Dataset* tested = options.held_out > 0 ? datasets.test.get() : datasets.validation.get();
  if (datasets.training == nullptr || tested == nullptr) return datasets;
  const ImageShape expected = image_shape(*datasets.training), found = image_shape(*tested);
  if (found.height != expected.height || found.width != expected.width)
    fail("data", "{}: expected test images of {} × {}, as for training, got {} × {}", options.path,
         expected.height, expected.width, found.height, found.width);
  return datasets;
}

Datasets open_cifar(const DataOptions& options, const Parts& parts) {
  if (options.path.empty())
    fail<UsageError>("data", "expected the path of a folder of CIFAR-10's binary files, got none");
  if (options.size < 0 || options.size > cifar_size)
    fail<UsageError>("data", "expected a size of 0 to {} pixels, got {}", cifar_size, options.size);
  const std::int64_t size = options.size == 0 ? cifar_size : options.size;
  check_image_options(options, {size, size, cifar_channels});
  const std::vector<std::filesystem::path> files = cifar_files(options.path);
  return open_with_test_files(
      options, parts,
      [&] { return open_cifar_part(options, read_cifar_training(std::span(files).first(files.size() - 1))); },
      [&] { return open_cifar_part(options, read_cifar(files.back())); });
}

}  // namespace linnet
