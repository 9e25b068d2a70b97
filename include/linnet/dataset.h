#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linnet/export.h"
#include "linnet/tensor.h"
#include "linnet/tokenizer.h"

namespace linnet {

/// Mean and standard deviation of columns of real numbers.
struct ColumnStatistics {
  std::vector<double> mean, deviation;
};

/// One of several sequences that stand one after another in an example.
struct PackedSequence {
  std::int64_t end = 0;     ///< steps of the example up to its own last one
  std::int64_t label = -1;  ///< −1 for data without labels
};

/// Examples of one length, for training and evaluation. A step of an example holds one or several tokens,
/// real numbers, or both. Immutable after opening: any thread may read. An index is 0 … size() − 1, and spans
/// have the documented sizes; callers see to it.
class LINNET_API Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of examples.
  virtual std::int64_t size() const = 0;
  /// Steps per example.
  virtual std::int64_t length() const = 0;
  /// Tokens are 0 … vocabulary - 1; with several fields those of the largest. 0 for steps without tokens.
  virtual std::int64_t vocabulary() const = 0;
  /// The number of values of each field: a step has a token 0 … fields()[f] - 1 for each. Most data have one
  /// field, whose values are the vocabulary.
  virtual std::vector<std::int64_t> fields() const;
  /// Labels are 0 … classes - 1; 0 for data without labels.
  virtual std::int64_t classes() const { return 0; }
  /// Real numbers per step.
  virtual std::int64_t columns() const { return 0; }
  /// Real numbers to predict per step: those of the step itself, those of the step and the following ones
  /// together, or others.
  virtual std::int64_t target_columns() const { return columns(); }
  /// Whether the targets of a step are predicted from the numbers of the steps up to and including it, as an
  /// output from an input. Otherwise they are predicted from the steps before.
  virtual bool paired() const { return false; }
  /// Of the training data: of `columns()`, and of `target_columns()`. Empty for data without real numbers.
  virtual ColumnStatistics column_statistics() const { return {}; }
  virtual ColumnStatistics target_statistics() const { return column_statistics(); }
  /// Tokens of the source of an example, for an encoder; 0 for data whose examples are one sequence each.
  virtual std::int64_t source_length() const { return 0; }
  /// Tokens of a source are 0 … source_vocabulary() − 1.
  virtual std::int64_t source_vocabulary() const { return 0; }
  /// Names of the columns, where the data have them.
  virtual std::vector<std::string> column_names() const { return {}; }

  /// Writes the tokens and the targets of example `index` (both [length, fields]). A target is the token
  /// itself if it counts in the loss, and -1 otherwise. A shorter example ends in padding, which is -1 in
  /// both. Returns the label, or -1 for data without labels.
  virtual std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                            std::span<std::int32_t> targets) const = 0;

  /// Writes the real numbers of example `index`, values [length, columns] and targets [length,
  /// target_columns]. A target that does not count in the loss is NaN. A shorter example ends in padding,
  /// which is NaN in both. Data without real numbers write nothing.
  virtual void read_values(std::int64_t index, std::span<float> values, std::span<float> targets) const;

  /// Names of the labels in their order, [classes], where the data have them.
  virtual std::vector<std::string> class_names() const { return {}; }

  /// The SentencePiece model that the tokens were made with, as in its file; empty for other data.
  virtual std::string tokenizer() const { return {}; }

  /// Steps of example `index` before its padding, at least 1. Data that do not say it read the example: steps
  /// without tokens are padding where nothing but padding follows them.
  virtual std::int64_t steps(std::int64_t index) const;

  /// Whether examples hold several whole sequences one after another. `read_sequences` gives them as `read`
  /// does, with where each of them ends.
  virtual bool packed() const { return false; }
  virtual std::vector<PackedSequence> read_sequences(std::int64_t index, std::span<std::int32_t> tokens,
                                                     std::span<std::int32_t> targets) const;
  /// Rows of the data in a step, whose real numbers are [patch, columns() / patch()].
  virtual std::int64_t patch() const { return 1; }
  /// Which of `column_names()` the first number of a row is in example `index`; the others follow it.
  virtual std::int64_t first_column(std::int64_t) const { return 0; }
  /// Of each of `column_names()`, where the real numbers of the examples are (number − mean) / deviation.
  /// Empty for examples in the units of the data.
  virtual ColumnStatistics applied_statistics() const { return {}; }
  /// Writes the source of example `index`, [source_length]; a shorter one ends in padding, which is -1. Data
  /// without sources write nothing.
  virtual void read_source(std::int64_t index, std::span<std::int32_t> tokens) const;
};

/// Size of pictures. Their tokens are the pixels row by row, with the channels of a pixel one after another.
struct ImageShape {
  std::int64_t height = 0;  ///< 0 for data that are no pictures, as is width
  std::int64_t width = 0;
  std::int64_t channels = 1;
};

/// Examples that are pictures, all of one shape.
class LINNET_API PictureDataset : public Dataset {
 public:
  virtual ImageShape image() const = 0;
  /// height · width · channels.
  std::int64_t length() const override;
};

/// The shape of the set's pictures, where it is a PictureDataset, and height and width 0 otherwise.
LINNET_API ImageShape image_shape(const Dataset& dataset);

/// Examples in memory, one per row of each array: steps of tokens, of real numbers, or of both. The memory of
/// the views is the caller's, is not copied and must not change. Rows may overlap: every window of `length`
/// steps of one sequence is a view [steps − length + 1, length, columns] with the strides {columns, columns,
/// 1}. What has no default is taken from the arrays where it is empty or 0.
struct ExampleArrays {
  View<const std::int32_t> tokens = {};  ///< [examples, length], or [examples, length, fields]
  View<const float> values = {};         ///< real numbers, [examples, length, columns]; NaN: not known
  /// [examples], the steps of each, 1 … length; the rest of its row is padding. Empty: all of them.
  std::vector<std::int64_t> lengths = {};
  std::vector<std::int64_t> labels = {};  ///< [examples], 0 … classes − 1; empty: none
  /// 0 where a step does not count in the loss, [examples, length], or [examples, length, fields] for the
  /// token of each field alone; empty: all count.
  View<const std::uint8_t> counted = {};
  /// [examples, length, targets], the real numbers to predict in place of `values`; NaN does not count.
  View<const float> value_targets = {};
  /// Whether `value_targets` are outputs, of the inputs up to and including the same step. Otherwise they are
  /// predicted from the steps before.
  bool paired = true;
  View<const std::int32_t> source = {};           ///< [examples, source length], what an encoder reads
  std::vector<std::int64_t> source_lengths = {};  ///< [examples], 1 … source length, as `lengths`
  std::vector<std::int64_t> fields = {};          ///< the number of values of each field: largest token + 1
  std::int64_t classes = 0;                       ///< as many as `class_names`, or the largest label + 1
  std::int64_t source_vocabulary = 0;             ///< largest token + 1
  ImageShape image = {};                          ///< of pictures, whose pixels are the tokens
  std::optional<Tokenizer> tokenizer = {};        ///< what made the tokens of a text, for the trained model
  std::vector<std::string> class_names = {};      ///< [classes]
  std::vector<std::string> column_names = {};     ///< [columns]
  std::shared_ptr<const void> owner = {};         ///< kept as long as the dataset, for memory that it owns
};

/// A dataset of examples in memory. Its statistics are those of the steps that are no padding; without
/// `lengths`, steps of windows that begin one step after each other count once. Throws UsageError for arrays
/// that do not fit each other, no examples, tokens and labels outside of their ranges, examples of which no
/// step counts, infinities, and columns of NaN alone.
LINNET_API std::shared_ptr<const Dataset> make_dataset(ExampleArrays arrays);

/// The examples of a dataset of tokens, which are shorter than its length, with several whole ones in each.
/// An example takes them in the order of decreasing length, each into the fullest example that has space for
/// it (best fit decreasing; Johnson, "Near-optimal bin packing algorithms", 1973). Throws UsageError for no
/// dataset, and for data with real numbers or sources, or that are packed already.
LINNET_API std::unique_ptr<Dataset> pack_examples(std::shared_ptr<const Dataset> dataset);

/// The examples of these indices, in this order; an index may occur several times. Everything else is that of
/// the whole: statistics, names, the tokenizer. Throws UsageError for no dataset, no index and for one that
/// the dataset does not have.
LINNET_API std::shared_ptr<const Dataset> select_examples(std::shared_ptr<const Dataset> dataset,
                                                          std::vector<std::int64_t> indices);

/// Index of the i-th example of an endless training order. Every epoch (`size` examples) has its own
/// permutation, computed by a cycle-walking Feistel network keyed by seed and epoch (Black and Rogaway,
/// "Ciphers with arbitrary finite domains", 2002). So nothing is stored, and training can resume at any
/// position. Size is at least 1, i at least 0.
LINNET_API std::int64_t shuffled_index(std::uint64_t seed, std::int64_t i, std::int64_t size);

/// The level of a pixel, out of `levels` (2 … 256): ⌊pixel · levels / 256⌋.
LINNET_API std::int32_t token_of_pixel(std::uint8_t pixel, std::int64_t levels);
/// A pixel whose level is `token`. Level 0 gives 0 and the highest level 255, with about equal distances
/// between. Throws UsageError for another number of levels and for a level beyond them.
LINNET_API std::uint8_t pixel_of_token(std::int32_t token, std::int64_t levels);

/// What to open. docs/commands/train.md, "Data of your own", describes the formats. The kinds:
/// - "digits": synthetic handwritten digits, `examples` for training and a tenth of that for validation;
/// - "mnist": a folder `path` of IDX files under MNIST's names, plain or gzipped; train-* for training,
///   t10k-* for validation, or with `held_out` for testing. Larger images are scaled down to `size` by
///   averaging areas;
/// - "cifar10": a folder `path` of CIFAR-10's binary files; data_batch_1.bin … data_batch_5.bin for training,
///   test_batch.bin for validation, or with `held_out` for testing. Scaled down to `size` like MNIST's,
///   channel by channel;
/// - "images": PNG and JPEG files in sub-folders of the folder `path`, which are named by their classes and
///   sorted, or in the folder itself or named one by one, without labels. Grey or colour; colour where any
///   image has it. All of one size, or scaled down to `size` × `size` like MNIST's. Every tenth image of a
///   class is for validation;
/// - "text": the bytes of the files `path`, one file after another. Every window of `length` bytes of the
///   first 90 % is a training example; the last 10 % are covered by windows that overlap by half, where only
///   bytes with half a window before them count (all of them in the first window), so that every byte counts
///   exactly once. A file with a byte of 0 is taken for a binary one and refused. With `tokenizer` the parts
///   are encoded each by itself, and lengths and windows count tokens;
/// - "bytes": the same for files of any bytes;
/// - "copy": the copy task, `examples` for training and a tenth of that for validation;
/// - "fasta": the proteins of the FASTA files `path`. Every tenth sequence is for validation, the others for
///   training; those longer than `length` are cut into equal pieces;
/// - "tokens": token ids in the files `path`: NAME.safetensors with a tensor `tokens` of integers [steps] or
///   [steps, fields] and an optional one `offsets` [pieces + 1]; NAME.npy with such tokens, and optionally
///   NAME.offsets.npy; NAME.bin of u16 or u32 (`token_bytes`). Every window of `length` steps of a file
///   without offsets is a training example; a longer piece of a file with them has windows that overlap by
///   half or more. The last tenth of a file without offsets and every tenth piece are for validation, with
///   overlapping windows of which every step counts exactly once. Shorter pieces are padded;
/// - "lines": lines LABEL<tab>text of the files `path`. Tokens are the bytes of the text, cut after `length`,
///   and labels are sorted by their bytes. Every tenth line is for validation;
/// - "pairs": lines source<tab>target of the files `path`, as one sequence: bytes of the source, 256 as a
///   separator, bytes of the target, 257 as the end. The target and the end alone count. With `source_length`
///   the bytes of the source, at least one, are a sequence of their own, and those of the target with the end
///   the other. Every tenth line is for validation;
/// - "reverse": pairs of a random string of small letters and the same string backwards, as pairs in either
///   form. `examples` for training and a tenth of that for validation;
/// - "series": columns of numbers of the CSV files `path`. `split` divides the rows of each file into
///   training, validation and test part; without it they end at 0.8, 0.9 and 1 of the rows. Its last parts
///   may be left out: the one before goes on to the end. With `validation`, `path` is for training as a
///   whole; with `test` and without `split` its last tenth is for validation. The statistics are those of the
///   training part. The targets of step t are those of the steps t … t + `horizon` − 1, [horizon, columns].
///   For training, every window of `length` steps inside the part is an example, and a target behind the part
///   does not count. For validation and testing, step t counts where all its targets lie inside the part: in
///   a part of n steps the first n − `horizon` + 1 ones, each in exactly one of windows that overlap by half.
///   Such a step has ⌈`length` / 2⌉ to `length` − 1 steps of its window before it, which may belong to the
///   part before; at the beginning of a file of its own it has fewer. With `patch` above 1 a step is so many
///   rows, [patch, columns], and its targets are those of its first row. For training, windows begin at every
///   row of the part. For validation and testing, every row that counts is the first row of the last step of
///   one example, in which no other step counts: `length` − 1 steps lie before it, or as many as the file
///   has. With `columns_apart` every column is a sequence of its own, columns() = `patch`. Its numbers are
///   normalised by the mean and the deviation of their column in the training part (`applied_statistics`);
/// - "sound": the sound files `path` (WAV, FLAC and what else libsndfile reads), of one rate and number of
///   channels, in the parts and windows of a series with `horizon` 1. A step is `patch` frames, and a frame
///   is a sample of each channel; frames at the end of a file that do not fill a step are left out. `sound` =
///   "samples" gives real numbers in [−1, 1], one column per sample of a step, and "mu-law" tokens of
///   `levels` values, one field per sample of a step. With `target`, files of the same names, or of other
///   names in the same order, of the same rate, channels and length, the targets are their samples at the
///   same step (`paired`). Then `validation` and `test` have targets of their own, `validation_target` and
///   `test_target`. Files are read piece by piece. Where the part for testing alone is opened, `path` may be
///   empty. Throws UsageError where Linnet was built without libsndfile.
///
/// Kinds of files take several: names separated by commas, or with * and ?, as in a shell and sorted. A name
/// that exists is taken as it stands. With `validation` all of `path` is for training. Where one part alone
/// is opened, "images" and "lines" read `path` for the names of the labels, "images" also the sizes of the
/// other parts' images that are there, "series" and "sound" read `path` for the statistics, and "tokens" all
/// files for the largest token where `fields` does not give it. Text files (but for "text" and "bytes") may
/// begin with the byte order mark of UTF-8.
///
/// Kinds ignore `path`, `length`, `size`, `levels`, `labels`, `examples`,
/// `seed` and the members without a key of linnet/run_config.h that they do not use. Any other member must
/// have its default where the kind does not use it.
struct DataOptions {
  std::string kind = "digits";
  std::string path = {};
  std::int64_t length = 0;        ///< tokens per example; required, but for images 0 or all pixels
  std::int64_t size = 16;         ///< height and width of images; 0: that of the files, 16 for digits
  std::int64_t levels = 256;      ///< levels that pixels or samples are quantised to
  bool labels = true;             ///< whether examples have the labels of the data
  std::int64_t examples = 20000;  ///< number of training examples of synthetic data
  std::int64_t seed = 1;          ///< seed of synthetic data
  /// Files for validation alone, as `path`; empty takes a part of `path`, as the kind says.
  std::string validation = {};
  std::string test = {};  ///< files for testing alone, as `path`
  /// MNIST and CIFAR-10: the last images of the training files that are for validation; the test files are
  /// then for testing alone. 0: the test files are for validation.
  std::int64_t held_out = 0;
  std::string fields =
      {};  ///< number of values of each field of tokens, "50,30"; empty: of the largest token
  std::int64_t token_bytes = 2;  ///< bytes of a token in .bin files: 2 or 4
  std::string columns = {};      ///< names of a series' columns, separated by commas; empty: all but the time
  std::string time = {};  ///< the column with the times; empty: the first one, if its first cell is a date
  /// Ends of the training, validation and test part, with commas between them: fractions, or times of the
  /// first rows that do not belong to the part.
  std::string split = {};
  std::string missing = "refuse";  ///< what to do with empty cells of a series: "refuse", "forward-fill"
  std::int64_t horizon = 1;        ///< steps of a series that are predicted at once
  std::string sound = "samples";   ///< what becomes of samples of sound: "samples", "mu-law"
  std::string target = {};         ///< sound files with the outputs for `path`, as `path`; empty: no pairs
  std::string tokenizer = {};      ///< file of a SentencePiece model for text; empty: bytes
  /// Whether training examples hold several whole sequences one after another where these are shorter than
  /// `length`: for "fasta", "lines", "pairs", and "tokens" with offsets. Other parts stay as they are.
  bool packing = false;
  std::int64_t patch = 1;      ///< rows of a series, or frames of sound, in a step
  bool columns_apart = false;  ///< whether every column of a series is a sequence of its own
  /// Pairs: tokens of a source, which is then a sequence of its own; 0: source and target are one sequence.
  std::int64_t source_length = 0;
  /// As `target`, of the files for validation and for testing.
  std::string validation_target = {}, test_target = {};
  std::optional<Tokenizer> opened_tokenizer = {};  ///< for text, in place of the file `tokenizer`
  /// Lines and images: the names of the labels in their order, as those of a model, in place of those in
  /// `path`. Examples may then have the label −1: lines without a tab or with nothing before it, and images
  /// that lie in no sub-folder.
  std::vector<std::string> class_names = {};
  std::int64_t channels = 0;  ///< of images, 1 or 3; 0: 3 where any of them is in colour
  /// Series: the contents of a CSV file, in place of the files `path`; and in place of the files `test`.
  std::shared_ptr<const std::string> contents = {}, test_contents = {};
  /// Series: the names that the columns which are read must have, in their order, as those of a model. Empty:
  /// any names.
  std::vector<std::string> column_names = {};
  /// Series with `columns_apart`: mean and deviation of each column, as those of a model, in place of those
  /// of the training part.
  std::optional<ColumnStatistics> statistics = {};
};

/// The values of `DataOptions::kind`.
LINNET_API std::vector<std::string> data_kinds();

struct Datasets {
  std::unique_ptr<Dataset> training, validation;
  std::unique_ptr<Dataset> test;  ///< null for kinds without a part for testing
};

/// All parts of the data. Throws UsageError for invalid options, and Error for files that cannot be read or
/// do not fit.
LINNET_API Datasets open_datasets(const DataOptions& options);

enum class Split { training, validation, test };

/// One part of the data, as `open_datasets` gives it; for testing always the test files of MNIST and
/// CIFAR-10. Files that only other parts need are not read and may be missing. Throws as `open_datasets`
/// does, and UsageError for a kind without that part.
LINNET_API std::unique_ptr<Dataset> open_dataset(const DataOptions& options, Split split);

}  // namespace linnet
