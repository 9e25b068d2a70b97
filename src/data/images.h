#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/parts.h"
#include "linnet/context.h"
#include "linnet/dataset.h"

namespace linnet {

/// Images of one size: pixels [count, height, width, channels] are read as tokens of `levels` levels.
class ImageDataset final : public PictureDataset {
 public:
  /// `labels` [count], all below `classes`, −1 for images without one, or empty for data without classes.
  /// `names` [classes], or empty.
  ImageDataset(std::vector<std::uint8_t> pixels, std::vector<std::int16_t> labels, std::int64_t classes,
               const ImageShape& image, std::int64_t levels, std::vector<std::string> names = {});

  std::int64_t size() const override { return static_cast<std::int64_t>(pixels_.size()) / length(); }
  std::int64_t vocabulary() const override { return levels_; }
  std::int64_t classes() const override { return labels_.empty() ? 0 : classes_; }
  std::vector<std::string> class_names() const override {
    return labels_.empty() ? std::vector<std::string>() : names_;
  }
  ImageShape image() const override { return image_; }
  /// Removes the last `count` images, 1 … size() − 1, and returns them as a data set of their own.
  std::unique_ptr<ImageDataset> take_last(std::int64_t count);
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override;

 private:
  std::vector<std::uint8_t> pixels_;
  std::vector<std::int16_t> labels_;
  std::int64_t classes_;
  ImageShape image_;
  std::int64_t levels_;
  std::vector<std::string> names_;
};

/// Images [count, height, width] scaled down to [count, size, size]: every new pixel is the mean over its
/// area, rounded. Size is at most height and width.
std::vector<std::uint8_t> scale_down(Context& context, std::span<const std::uint8_t> pixels,
                                     std::int64_t count, std::int64_t height, std::int64_t width,
                                     std::int64_t size);

/// Throws UsageError where the options of pictures do not fit the size that the pictures will have.
void check_image_options(const DataOptions& options, const ImageShape& image);

/// A file of MNIST under one of the names that it goes by in the folder: plain or .gz, with a dash or a dot
/// before "idx". Throws Error where there is none.
std::filesystem::path find_mnist_file(const std::filesystem::path& folder, const std::string& name);

/// The kinds "digits", "mnist" and "cifar10" of open_datasets, their options checked.
Datasets open_digits(const DataOptions& options, const Parts& parts);
Datasets open_mnist(const DataOptions& options, const Parts& parts);
Datasets open_cifar(const DataOptions& options, const Parts& parts);

}  // namespace linnet
