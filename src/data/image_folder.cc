#include "data/image_folder.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/memory.h"
#include "base/names.h"
#include "base/parallel.h"
#include "data/cifar.h"
#include "data/files.h"
#include "data/images.h"
#include "io/file.h"
#include "io/image.h"
#include "io/json.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_classes = 10'000;

/// The label of an image without one.
constexpr std::size_t no_label = std::numeric_limits<std::size_t>::max();

// The names in a folder that `wanted` accepts, sorted by their bytes; hidden ones are left out.
template <class Wanted>
std::vector<fs::path> sorted_entries(const fs::path& folder, const Wanted& wanted) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (!at->path().filename().string().starts_with('.') && wanted(*at)) entries.push_back(at->path());
  if (error) fail("data", "cannot read {}: {}", folder.string(), error.message());
  std::ranges::sort(entries, {}, [](const fs::path& path) -> const std::string& { return path.native(); });
  return entries;
}

std::vector<fs::path> images_in(const fs::path& folder) {
  return sorted_entries(folder, [](const fs::directory_entry& entry) {
    return is_image_file(entry.path()) && is_file_of_folder(entry);
  });
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  return sorted_entries(folder, [](const fs::directory_entry& entry) {
    std::error_code ignored;
    return entry.is_directory(ignored);
  });
}

bool is_folder(const std::string& name) {
  std::error_code ignored;
  return fs::is_directory(name, ignored);
}

using Files = std::vector<ImageFolder::File>;

/// Every tenth file of each class.
Files hold_out(Files& all, const std::string& folder) {
  Files kept, held_out;
  std::size_t of_class = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    of_class = i > 0 && all[i].label == all[i - 1].label ? of_class + 1 : 0;
    (is_held_out(of_class) ? held_out : kept).push_back(std::move(all[i]));
  }
  if (held_out.empty())
    fail("data", "{}: expected at least {} images of a class, every tenth of which is held out, got fewer",
         folder, held_out_every);
  all = std::move(kept);
  return held_out;
}

/// The shape that all images will have, by the headers of their files.
class CommonShape {
 public:
  /// `channels` 0 takes those of the images.
  CommonShape(std::int64_t size, std::int64_t channels) : size_(size), channels_(channels) {}

  void add(const fs::path& path) {
    const Image image = read_image_header(path);
    if (size_ > std::min(image.height, image.width))
      fail("data", "{}: expected an image of at least data.size = {} pixels each way, got {} × {}",
           path.string(), size_, image.height, image.width);
    if (first_.empty()) {
      first_ = path;
      shape_ = {image.height, image.width, image.channels};
    } else if (size_ == 0 && (image.height != shape_.height || image.width != shape_.width)) {
      fail("data",
           "expected images of one size, or data.size to scale them to, got {} of {} × {} and {} of {} × {}",
           first_.string(), shape_.height, shape_.width, path.string(), image.height, image.width);
    }
    shape_.channels = std::max(shape_.channels, image.channels);
  }
  ImageShape shape() const {
    ImageShape shape = size_ > 0 ? ImageShape{size_, size_, shape_.channels} : shape_;
    if (channels_ > 0) shape.channels = channels_;
    return shape;
  }

 private:
  std::int64_t size_, channels_;
  fs::path first_;
  ImageShape shape_;
};

/// Whether an image in colour has grey pixels alone.
bool is_grey(const Image& image) {
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    if (image.pixels[i] != image.pixels[i - i % channels]) return false;
  return true;
}

/// The image's pixels [height, width, channels] at the common shape; a grey one has equal channels there.
std::vector<std::uint8_t> pixels_of(Context& context, const fs::path& path, const ImageShape& shape,
                                    const DataOptions& options) {
  const std::int64_t size = options.size;
  const Image image = read_image(path);
  const std::int64_t pixels = image.height * image.width, channels = shape.channels;
  const bool fits = size > 0 ? std::min(image.height, image.width) >= size
                             : image.height == shape.height && image.width == shape.width;
  if (image.channels > channels && options.channels > 0 && !is_grey(image))
    fail("data", "{}: expected a grey image, got one in colour", path.string());
  if (!fits || (image.channels > channels && options.channels == 0))
    fail("data", "{}: expected an image that is still as its header was, got one of {} × {} × {}",
         path.string(), image.height, image.width, image.channels);
  std::vector<std::uint8_t> planes(static_cast<std::size_t>(pixels * channels));
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t p = 0; p < pixels; ++p)
      planes[static_cast<std::size_t>(c * pixels + p)] =
          image.pixels[static_cast<std::size_t>(p * image.channels + std::min(c, image.channels - 1))];
  if (size > 0) planes = scale_down(context, planes, channels, image.height, image.width, size);
  return interleave(planes, channels, shape.height * shape.width);
}

}  // namespace

ImageFolder list_images(const std::string& source) {
  ImageFolder result;
  if (const auto files = files_found(source);
      !is_folder(source) && !files.empty() && std::ranges::all_of(files, is_image_file)) {
    for (const fs::path& path : files) result.files.push_back({path, 0});
    return result;
  }
  const fs::path folder = source;
  for (const fs::path& path : images_in(folder)) result.files.push_back({path, 0});
  const bool in_folder = !result.files.empty();
  for (const fs::path& sub_folder : folders_in(folder)) {
    const std::vector<fs::path> images = images_in(sub_folder);
    if (images.empty()) continue;
    if (in_folder)
      fail("data",
           "{}: expected PNG or JPEG files in sub-folders named by their classes or in the folder itself, "
           "got both, "
           "as {} and {}",
           folder.string(), result.files.front().path.string(), images.front().string());
    for (const fs::path& path : images) result.files.push_back({path, result.classes.size()});
    result.classes.push_back(sub_folder.filename().string());
  }
  if (result.files.empty())
    fail("data",
         "{}: expected PNG or JPEG files in sub-folders named by their classes, or in the folder, got none",
         folder.string());
  if (result.classes.size() > most_classes)
    fail("data", "{}: expected at most {} classes, got {} sub-folders", folder.string(), most_classes,
         result.classes.size());
  return result;
}

bool has_images(const fs::path& folder) {
  if (!images_in(folder).empty()) return true;
  return std::ranges::any_of(folders_in(folder),
                             [](const fs::path& sub_folder) { return !images_in(sub_folder).empty(); });
}

Datasets open_images(const DataOptions& options, const Parts& parts) {
  if (options.size < 0) fail<UsageError>("data", "expected a size of at least 0, got {}", options.size);
  const bool named = !options.class_names.empty();
  std::optional<std::vector<std::string>> classes;  // of the first folder
  if (named) classes = options.class_names;
  CommonShape common(options.size, options.channels);
  const auto read = [&](const char* key, const std::string& folder) {
    if (folder.empty())
      fail<UsageError>("data", "expected the path of a folder of images in {}, got none", key);
    ImageFolder images = list_images(folder);
    if (!classes) classes = images.classes;
    for (const ImageFolder::File& file : images.files) common.add(file.path);
    if (!options.labels || (classes->empty() && images.classes.empty())) return std::move(images.files);
    const auto label_of = [&](const std::string& name) {
      const auto found = std::ranges::find(*classes, named ? as_json_text(name) : name);
      if (found == classes->end())
        fail("data", "{}: expected sub-folders of {} among the {} classes of {}, got \"{}\"", folder, key,
             classes->size(), named ? "the model" : "data.path", shortened(name));
      return static_cast<std::size_t>(found - classes->begin());
    };
    const bool unlabelled = named && images.classes.empty();
    if (!unlabelled && images.classes.empty()) images.classes.emplace_back();
    std::vector<std::size_t> labels;
    for (const std::string& name : images.classes) labels.push_back(label_of(name));
    for (ImageFolder::File& file : images.files) file.label = unlabelled ? no_label : labels[file.label];
    return std::move(images.files);
  };
  // The classes are those of data.path, and all parts have one shape, as far as they are there.
  Parts wanted = parts;
  wanted.validation = parts.validation || is_folder(options.validation);
  wanted.test = parts.test || is_folder(options.test);
  auto files = read_parts(
      options, wanted, read, [&](Files& all) { return hold_out(all, options.path); },
      !options.path.empty() && !named);
  const ImageShape shape = common.shape();
  check_image_options(options, shape);

  const std::int64_t each = shape.height * shape.width * shape.channels;
  const auto dataset = [&](const std::optional<Files>& of, bool is_wanted) -> std::unique_ptr<Dataset> {
    if (!of || !is_wanted) return nullptr;
    require_memory("the images", static_cast<double>(each) * static_cast<double>(of->size()));
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(each) * of->size());
    std::vector<std::int16_t> labels;
    for (const ImageFolder::File& file : *of)
      if (options.labels && !classes->empty())
        labels.push_back(file.label == no_label ? -1 : static_cast<std::int16_t>(file.label));
    Context context;
    parallel_for(context, std::ssize(*of), [&](Context& own, std::int64_t i) {
      const auto image = pixels_of(own, (*of)[static_cast<std::size_t>(i)].path, shape, options);
      std::ranges::copy(image, pixels.begin() + i * each);
    });
    return std::make_unique<ImageDataset>(std::move(pixels), std::move(labels), std::ssize(*classes), shape,
                                          options.levels, *classes);
  };
  return {dataset(files.training, parts.training), dataset(files.validation, parts.validation),
          dataset(files.test, parts.test)};
}

}  // namespace linnet
