#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "linnet/attention_config.h"
#include "linnet/context.h"
#include "linnet/export.h"
#include "linnet/layer_types.h"

namespace linnet {

/// What a model predicts:
/// - next_token: each step from those before it;
/// - masked: some hidden tokens from all others (Devlin et al. 2019, section 3.1). A masked model is a
///   bidirectional encoder and does not generate;
/// - same_step: real numbers at each step from the inputs up to and including it, as a filter does;
/// - classify: the label of the whole sequence, from the mean of its hidden rows.
enum class Objective { next_token, masked, same_step, classify };

/// The distribution of a token: a logit for every value, or a mixture of discretised logistics (Salimans et
/// al. 2017).
enum class OutputDistribution { categorical, logistics };

/// The configuration of a model. The keys in TOML files, `--set` and config.json are those that
/// `linnet train --options` lists: model.layers, attention.family and so on.
struct LINNET_API ModelConfig {
  Objective objective = Objective::next_token;
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t width = 64;          ///< of the residual stream; heads · head size
  std::int64_t feed_forward = 256;  ///< hidden width of the feed-forward layers
  NormOrder norm = NormOrder::pre;
  NormKind norm_kind = NormKind::layer;
  Activation activation = Activation::gelu;
  double dropout = 0;        ///< on the output of attention and of feed-forward, in training
  bool tied_output = false;  ///< the output's weights are the embedding's (categorical head)
  Positions positions = Positions::learned;
  std::int64_t length = 256;      ///< tokens of a training example
  std::int64_t vocabulary = 256;  ///< tokens are 0 … vocabulary − 1; 0 for steps of real numbers alone
  /// The numbers of values of several fields of a step, "50,30", of which `vocabulary` is the largest; empty
  /// for one field. Field f has tokens 0 … field_sizes()[f] − 1. A model of the next token predicts them in
  /// order, each given those before; a masked one predicts every hidden field by itself.
  std::string fields = {};
  std::int64_t columns = 0;  ///< real numbers of a step's input
  std::int64_t targets = 0;  ///< real numbers predicted per step; 0: as many as columns
  /// Rows of the data in a step: its input is [patch, columns / patch] numbers. Another step of the same
  /// columns follows; n = columns / patch is the number of columns of the data.
  std::int64_t patch = 1;
  /// Target t is predicted as its difference from column t mod n of the last row: of the step before in a
  /// next-token model, of the step itself in a same-step model.
  bool relative = false;
  /// Inputs are differences from the last row of the step before, in the first step with numbers from its
  /// own first row.
  bool relative_inputs = false;
  ValueDistribution value_head = ValueDistribution::gaussian;  ///< density of the real numbers
  /// Labels. A model of the next token has a class token as its first input for each, otherwise the start
  /// token; a classifier predicts them.
  std::int64_t classes = 0;
  bool bidirectional = false;  ///< whether steps of a classifier or of a same_step model see all others
  OutputDistribution head = OutputDistribution::categorical;
  std::int64_t mixtures = 10;            ///< components of the mixture
  WeightType weights = WeightType::f32;  ///< of the dense products; trained in f32
  AttentionConfig attention = {};

  /// For models of pictures, whose tokens are the levels of pixels in reading order, with the channels of a
  /// pixel one after another. Height and width are 0 for other models.
  std::int64_t image_height = 0;
  std::int64_t image_width = 0;
  std::int64_t image_channels = 1;  ///< image.channels, 1 (grey) or 3 (red, green, blue)

  /// Layers of an encoder over a source of tokens, whose positions see each other. Every layer of the model,
  /// the decoder, then attends to its rows between self-attention and feed-forward (Vaswani et al. 2017,
  /// section 3.1). 0: no encoder.
  std::int64_t encoder_layers = 0;
  std::int64_t source_length = 0;  ///< tokens of a source in training; 0 without an encoder
  std::int64_t source_vocabulary =
      0;  ///< tokens of a source are 0 … source_vocabulary − 1; 0: as `vocabulary`

  /// Throws UsageError, naming the key, for invalid values.
  void check() const;

  /// Whether the objective is masked.
  bool masked() const { return objective == Objective::masked; }

  /// Whether it is an encoder–decoder model.
  bool has_encoder() const { return encoder_layers > 0; }

  /// Numbers of values of a source's token.
  std::int64_t source_tokens() const { return source_vocabulary > 0 ? source_vocabulary : vocabulary; }

  bool classifies() const { return objective == Objective::classify; }

  /// Whether inputs are the steps before those that they predict.
  bool shifted() const { return objective == Objective::next_token; }

  /// Whether a step sees those up to itself alone.
  bool causal() const { return !masked() && (shifted() || !bidirectional); }

  /// The number of values of each field of a step; empty for steps of real numbers alone.
  std::vector<std::int64_t> field_sizes() const;

  /// Real numbers that are predicted per step.
  std::int64_t target_count() const { return classifies() ? 0 : targets > 0 ? targets : columns; }

  /// Rows of the embedding of the first field: its values, and in a model of the next token one token per
  /// class, or the start token (in a masked model the mask token) if there are no classes. Other fields have
  /// their values and a start token or mask token. Steps without tokens have the start or the class tokens
  /// alone.
  std::int64_t input_tokens() const;

  /// Tokens of a step's input: one for each field; in a model of the next step without fields one, which is
  /// the start or class token first and −1 later.
  std::int64_t input_fields() const;

  /// The first input of a sequence (of its first field): the token of class `label`, or the start token for
  /// label −1 in a model without classes. Throws UsageError for labels that the model does not have.
  std::int32_t first_input(std::int64_t label) const;

  /// The input in place of a hidden token in a masked model of one field; with several ones it is the number
  /// of the values of the field.
  std::int32_t mask_token() const { return static_cast<std::int32_t>(vocabulary); }

  /// Throws UsageError for a model that does not generate: a masked one.
  void check_generates() const;
};

/// The names of these values in files and on the command line.
LINNET_API const char* name_of(Objective objective);
LINNET_API const char* name_of(NormOrder order);
LINNET_API const char* name_of(NormKind kind);
LINNET_API const char* name_of(Activation activation);
LINNET_API const char* name_of(Positions positions);
LINNET_API const char* name_of(OutputDistribution distribution);
LINNET_API const char* name_of(ValueDistribution distribution);
LINNET_API const char* name_of(WeightType type);

/// What a masked model predicts at its hidden positions (`Model::fill`), in the order of the tokens.
struct LINNET_API Filling {
  std::vector<std::int64_t> positions;  ///< [hidden], indices into the tokens [batch · length · fields]
  std::vector<std::int32_t> tokens;     ///< [hidden], the most probable token of each
  /// [hidden, vocabulary], f32; every row adds up to 1. Tokens that a field does not have get 0.
  Tensor probabilities;
};

/// Inputs of a model whose steps have several fields or real numbers, or of a classifier. What the model does
/// not take is empty.
struct Steps {
  std::int64_t batch = 1, length = 0;
  std::span<const std::int32_t> tokens = {};  ///< [batch · length · ModelConfig::input_fields]
  std::span<const float> values = {};         ///< [batch · length · columns]; NaN is read as the mean
  /// [batch], 1 … length: the steps of each entry before its padding, which may hold anything; empty for no
  /// padding.
  std::span<const std::int64_t> key_lengths = {};
};

/// The densities of real numbers, in the units of the data, [batch, length, targets] each.
struct LINNET_API Densities {
  Tensor mean;
  Tensor scale;    ///< standard deviation of a Gaussian, scale of Student's t; 1 deviation for squared error
  Tensor freedom;  ///< ν of Student's t, infinite for the others
};

/// Natural logarithm of the density of a number under one of `Densities`, in the same units: Gaussian where
/// `freedom` is infinite, otherwise Student's t.
LINNET_API double log_density(double number, double mean, double scale, double freedom);

/// What a model's folder holds so that labels, text, series and sound need no other files; each may be empty.
struct ModelAssets {
  std::vector<std::string> class_names = {};  ///< [classes], in the order of the labels; labels.json
  std::string tokenizer = {};                 ///< a SentencePiece model, as tokenizer.model holds it
  std::string columns = {};  ///< how the data of the training were read, as columns.json holds it
};

/// A trained model: immutable, shared by any number of sessions and threads. `forward`, `hidden`, `score` and
/// `fill` may be called at once from several threads, each with its own context.
class LINNET_API Model {
 public:
  /// Largest number of tokens that `score` and `Session::prefill` take through the layers together.
  static constexpr std::int64_t slice = 512;

  /// Loads a folder with config.json and model.safetensors. `settings` ("attention.family=softmax") replace
  /// values of the configuration; the weights must still fit. A feature map of your own is passed as an
  /// object whose name is that in the configuration, or registered (`register_feature_map`). Throws Error
  /// that names the file and the fault, and UsageError for invalid settings.
  static std::shared_ptr<const Model> load(const std::filesystem::path& folder,
                                           std::span<const std::string> settings = {},
                                           std::shared_ptr<const FeatureMap> feature_map = nullptr);

  /// A model with the random weights from which training starts; `feature_map` as in `load`. Throws
  /// UsageError as `ModelConfig::check` does.
  static std::shared_ptr<const Model> random(const ModelConfig& config, std::uint64_t seed = 0,
                                             std::shared_ptr<const FeatureMap> feature_map = nullptr);

  ~Model();

  /// Writes config.json, model.safetensors and the assets into the folder, each file atomically. Throws Error
  /// for a file that cannot be written.
  void save(const std::filesystem::path& folder) const;

  /// Logits [batch, length, vocabulary], f32, for the inputs `tokens` [batch · length]: up to a constant per
  /// row the log-probabilities of every token, and with the mixture of logistics the log-probabilities of
  /// every level themselves. In a decoder row i predicts the token after the inputs 0 … i, and the first
  /// input of a sequence is `config().first_input(label)`. In a masked model row i predicts the token at
  /// position i itself, and `config().mask_token()` stands for a hidden one.
  ///
  /// `key_lengths` [batch] is optional: the tokens of each entry, 1 … length. The rest of an entry is
  /// padding, whose tokens may be any numbers and whose rows mean nothing.
  ///
  /// Throws UsageError where sizes do not fit or a token is none of the `config().input_tokens()`, Error for
  /// a length that the model does not have, OutOfMemoryError where the free memory does not hold what lies
  /// between layers.
  Tensor forward(Context& context, std::span<const std::int32_t> tokens, std::int64_t batch,
                 std::int64_t length, std::span<const std::int64_t> key_lengths = {}) const;

  /// The rows [batch, length, width], f32, that the output head takes, for the same arguments: the embeddings
  /// of the tokens in their context. Throws as `forward` does.
  Tensor hidden(Context& context, std::span<const std::int32_t> tokens, std::int64_t batch,
                std::int64_t length, std::span<const std::int64_t> key_lengths = {}) const;

  /// The same of steps of several fields or real numbers, whose inputs are those of `predict`. Throws
  /// UsageError for an encoder–decoder model and for steps that it does not take.
  Tensor hidden(Context& context, const Steps& steps) const;

  /// Natural logarithm of the probability of every token of one sequence, given those before it; the first is
  /// predicted from the start token, or from the class token of `label` (−1 for a model without classes). In
  /// a model of several fields tokens and results are [steps, fields], and a token is predicted from the
  /// fields of its step before it, too.
  /// Families with a recurrent form take the sequence in slices of `slice` tokens, so that the working memory
  /// beside the state does not grow with it.
  /// Throws UsageError for a masked model (see `fill`), for one with real numbers, for tokens that the model
  /// does not have and for such a label, Error for such a length.
  std::vector<float> score(Context& context, std::span<const std::int32_t> tokens,
                           std::int64_t label = -1) const;

  /// The same for an encoder–decoder model, whose tokens also depend on those of `source`, at least one. The
  /// whole sequence passes at once. Throws as above, and UsageError for a model without an encoder and for
  /// source tokens outside 0 … source_tokens() − 1.
  std::vector<float> score(Context& context, std::span<const std::int32_t> source,
                           std::span<const std::int32_t> tokens) const;

  /// The distribution of every hidden token of `tokens` [batch · length · fields], where −1 stands for a
  /// hidden one. All hidden tokens of an entry are predicted in one pass, from those that are given.
  /// `key_lengths` as in `forward`. Throws UsageError for a model that is not masked, and as `forward` does.
  Filling fill(Context& context, std::span<const std::int32_t> tokens, std::int64_t batch,
               std::int64_t length, std::span<const std::int64_t> key_lengths = {}) const;

  /// The probabilities [batch, classes] of the labels of sequences; every row adds up to 1. Throws UsageError
  /// for a model that is no classifier (model.objective = "classify") and for steps that it does not take.
  Tensor classify(Context& context, const Steps& steps) const;

  /// The density of every number that a model predicts at each step: in a model of the next step from the
  /// steps before, whose first input is the start or class token with values of NaN, and in one of the same
  /// step from the inputs up to it. Throws UsageError for a model without real numbers and for steps that it
  /// does not take.
  Densities predict(Context& context, const Steps& steps) const;

  const ModelConfig& config() const;

  const ModelAssets& assets() const;

  /// The map that the model was given, or nullptr for a built-in one.
  const std::shared_ptr<const FeatureMap>& feature_map() const;

  std::int64_t parameter_count() const;

  /// Bytes of the weights as they are used.
  std::size_t weight_bytes() const;

  class Impl;
  const Impl& impl() const { return *impl_; }  ///< for Linnet's own modules

 private:
  Model() = default;

  std::unique_ptr<const Impl> impl_;
};

}  // namespace linnet
