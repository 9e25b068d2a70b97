#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace linnet {

/// Examples of one length: what a model is trained and evaluated on. Immutable after opening: any thread may
/// read.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of examples.
  virtual std::int64_t size() const = 0;
  /// Tokens an example.
  virtual std::int64_t length() const = 0;
  /// Tokens are 0 … vocabulary - 1.
  virtual std::int64_t vocabulary() const = 0;
  /// Labels are 0 … classes - 1; 0 where there are none.
  virtual std::int64_t classes() const { return 0; }
  /// Writes the tokens of example `index`, and as targets the tokens again where they count in the loss, -1
  /// elsewhere (both [length]). A shorter example ends in padding, which is -1 in both. Returns the label, -1
  /// where there are none.
  virtual std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                            std::span<std::int32_t> targets) const = 0;
  /// Of images, whose pixels are the tokens row by row, the channels of each one after another; height and
  /// width are 0 where examples are none.
  virtual std::int64_t height() const { return 0; }
  virtual std::int64_t width() const { return 0; }
  virtual std::int64_t channels() const { return 1; }
};

/// Index of the i-th example of an endless training order: every epoch (`size` examples) is a permutation of
/// its own, computed by a cycle-walking Feistel network keyed by seed and epoch (Black and Rogaway, "Ciphers
/// with arbitrary finite domains", 2002), so that nothing is stored and any position can be resumed from.
/// Size is at least 1, i at least 0.
std::int64_t shuffled_index(std::uint64_t seed, std::int64_t i, std::int64_t size);

/// Grey level that a pixel is quantised to, of `levels` (2 … 256): ⌊pixel · levels / 256⌋.
std::int32_t token_of_pixel(std::uint8_t pixel, std::int64_t levels);
/// A pixel that is quantised to `token`, so that 0 gives 0 and the highest level 255, and those between keep
/// distances.
std::uint8_t pixel_of_token(std::int32_t token, std::int64_t levels);

/// What to open. The kinds:
/// - "digits": synthetic handwritten digits (data/digits.h), `examples` for training and a tenth of that for
/// validation;
/// - "mnist": a folder `path` of IDX files under MNIST's names, plain or gzipped; train-* for training,
/// t10k-* for
///   validation. Larger images are scaled down to `size` by averaging areas;
/// - "cifar10": a folder `path` of CIFAR-10's binary files (data/cifar.h); data_batch_1.bin …
/// data_batch_5.bin
///   for training, test_batch.bin for validation. Scaled down to `size` like MNIST's, channel by channel;
/// - "text": the bytes of the file `path`. Every window of `length` bytes of the first 90 % is a training
/// example; the
///   last 10 % are covered by windows that overlap by half, where only bytes with half a window before them
///   count (all of them in the first window), so that every byte counts exactly once;
/// - "copy": the copy task (data/copy_task.h), `examples` for training and a tenth of that for validation;
/// - "fasta": the proteins of the FASTA file `path` (data/fasta.h). Every tenth sequence is for validation,
/// the others for training; those longer than `length` are cut into equal pieces.
struct DataOptions {
  std::string kind = "digits";
  std::string path = {};
  std::int64_t length = 0;        ///< tokens an example, for images 0 or all of them; the others need it
  std::int64_t size = 16;         ///< height and width of images; 0: that of the files, 16 for digits
  std::int64_t levels = 256;      ///< levels that pixels are quantised to
  bool labels = true;             ///< whether examples of labelled data carry their label
  std::int64_t examples = 20000;  ///< of synthetic sets
  std::int64_t seed = 1;          ///< of synthetic sets
};

struct Datasets {
  std::unique_ptr<Dataset> training, validation;
};

/// Throws UsageError for options that cannot be, Error for files that cannot be read or do not fit.
Datasets open_datasets(const DataOptions& options);

}  // namespace linnet
