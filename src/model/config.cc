#include "model/config.h"

#include <algorithm>
#include <charconv>

#include "attention/family.h"
#include "base/fail.h"
#include "base/lists.h"
#include "base/names.h"

namespace linnet {
namespace {

constexpr std::int64_t most_width = 1 << 16;
constexpr std::int64_t most_vocabulary = 1 << 20;
constexpr std::size_t most_fields = 256;
constexpr std::int64_t most_length = std::int64_t{1} << 32;

/// The names of the first `count` values of an enumeration.
template <class Enum>
std::vector<std::string> names(int count) {
  std::vector<std::string> result;
  for (int i = 0; i < count; ++i) result.emplace_back(name_of(static_cast<Enum>(i)));
  return result;
}

}  // namespace

const char* name_of(Objective objective) {
  switch (objective) {
    case Objective::next_token:
      return "next-token";
    case Objective::masked:
      return "masked";
    case Objective::same_step:
      return "same-step";
    case Objective::classify:
      break;
  }
  return "classify";
}

const char* name_of(ValueDistribution distribution) {
  switch (distribution) {
    case ValueDistribution::squared_error:
      return "squared-error";
    case ValueDistribution::gaussian:
      return "gaussian";
    case ValueDistribution::student_t:
      break;
  }
  return "student-t";
}

const char* name_of(NormOrder order) { return order == NormOrder::post ? "post" : "pre"; }

const char* name_of(NormKind kind) { return kind == NormKind::rms ? "rms" : "layer"; }

const char* name_of(Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu-tanh";
    case Activation::relu:
      return "relu";
    case Activation::swiglu:
      return "swiglu";
    case Activation::none:
      break;
  }
  return "none";
}

const char* name_of(Positions positions) {
  switch (positions) {
    case Positions::learned:
      return "learned";
    case Positions::sinusoidal:
      return "sinusoidal";
    case Positions::rotary:
      return "rotary";
    case Positions::none:
      break;
  }
  return "none";
}

const char* name_of(OutputDistribution distribution) {
  return distribution == OutputDistribution::logistics ? "logistics" : "categorical";
}

const char* name_of(WeightType type) {
  switch (type) {
    case WeightType::f32:
      return "f32";
    case WeightType::bf16:
      return "bf16";
    case WeightType::int8:
      break;
  }
  return "int8";
}

SequenceConfig sequence_of(const ModelConfig& config) {
  return {.length = config.length,
          .causal = config.causal(),
          .bounded = config.positions == Positions::learned || config.image_height > 0};
}

ModelConfig encoder_config(const ModelConfig& config) {
  ModelConfig encoder = config;
  encoder.objective = Objective::masked;
  encoder.layers = config.encoder_layers;
  encoder.length = config.source_length;
  encoder.vocabulary = config.source_tokens();
  encoder.attention.linear.decay = Decay::none;
  return encoder;
}

bool has_recurrent_form(const ModelConfig& config) {
  return config.causal() && !config.classifies() &&
         std::ranges::all_of(layer_families(config.attention, config.layers),
                             [](Family family) { return info_of(family).recurrent; });
}

bool has_fixed_states(const ModelConfig& config) {
  return config.causal() && !config.classifies() && !config.has_encoder() &&
         std::ranges::all_of(layer_families(config.attention, config.layers),
                             [](Family family) { return entry_of(family).fixed_state; });
}

std::string without_effect(const ModelConfig& config, std::string_view key) {
  if (key == "model.mixtures" && config.head != OutputDistribution::logistics)
    return "without model.head = logistics";
  if (key == "model.value_head" && config.target_count() == 0)
    return "on a model that predicts no real numbers";
  if (key == "model.head" && (config.field_sizes().empty() || config.classifies()))
    return "on a model that predicts no tokens";
  return {};
}

void check_one_token(const char* operation, const ModelConfig& config) {
  if (config.has_encoder())
    fail<UsageError>(operation,
                     "expected a model without an encoder, got an encoder–decoder model, which needs "
                     "a source");
  if (config.field_sizes().size() == 1 && config.columns == 0 && (config.shifted() || config.masked()))
    return;
  fail<UsageError>(operation, "expected a model that predicts one token per step, got one of {}",
                   config.classifies()                               ? "labels"
                   : config.columns > 0 || config.target_count() > 0 ? "real numbers"
                                                                     : "several fields");
}

void add_options(Options& options, ModelConfig& config) {
  options.add(
      "model.objective", config.objective,
      "predict each step from those before it, hidden tokens from all others (an encoder), numbers at "
      "each step from the inputs up to it, or the label of the whole sequence",
      names<Objective>(4));
  options.add("model.layers", config.layers, "number of transformer layers", 1, 1000);
  options.add("model.heads", config.heads, "attention heads; must divide the width", 1, 1024);
  options.add("model.width", config.width, "width of the residual stream", 1, most_width);
  options.add("model.feed_forward", config.feed_forward, "hidden width of the feed-forward layers", 1,
              4 * most_width);
  options.add("model.norm", config.norm, "normalisation before or after attention and feed-forward",
              names<NormOrder>(2));
  options.add("model.norm_kind", config.norm_kind,
              "layer normalisation, or by the root mean square (a gain, no bias)", names<NormKind>(2));
  options.add("model.activation", config.activation,
              "activation of the feed-forward layers; gelu is the exact form; swiglu adds a third product of "
              "the same hidden width",
              names<Activation>(4));
  options.add("model.dropout", config.dropout, "dropout probability of each branch's output, in training", 0,
              0.95);
  options.add("model.tied_output", config.tied_output, "use the embedding table as output weights");
  options.add(
      "model.positions", config.positions,
      "position encoding: learned (up to model.length tokens), sinusoidal or rotary (any length), none",
      names<Positions>(4));
  options.add("model.length", config.length, "tokens per training example; without it those of the data", 1,
              most_length);
  options.add("model.vocabulary", config.vocabulary,
              "number of tokens, or 0 for steps of real numbers alone; without it that of the data", 0,
              most_vocabulary);
  options.add("model.fields", config.fields,
              "numbers of values of several fields of a step, separated by commas; empty: one field");
  options.add("model.columns", config.columns, "real numbers of a step's input", 0, most_width);
  options.add("model.targets", config.targets,
              "real numbers that are predicted per step; 0: as many as columns", 0, most_width);
  options.add("model.patch", config.patch, "rows of a series in a step", 1, most_width);
  options.add("model.relative", config.relative,
              "predict real numbers as differences from the last input, or with same-step from this one");
  options.add("model.relative_inputs", config.relative_inputs,
              "give real numbers as differences from the last ones of the step before");
  options.add("model.value_head", config.value_head, "density of the real numbers",
              names<ValueDistribution>(3));
  options.add("model.classes", config.classes,
              "number of labels; the first input of a model of the next token is that of the label", 0,
              1 << 20);
  options.add("model.bidirectional", config.bidirectional,
              "let every step see all others; for classify and same-step");
  options.add("model.head", config.head, "output distribution of a token", names<OutputDistribution>(2));
  options.add("model.mixtures", config.mixtures, "components of the mixture of logistics", 1, 1000);
  options.add("model.weights", config.weights,
              "type of the weights of dense layers; training needs f32, `linnet convert` makes the others",
              names<WeightType>(3));
  add_settings(options, config.attention);
  options.add("image.height", config.image_height, "rows of a picture, if tokens are pixels", 0, 1 << 14);
  options.add("image.width", config.image_width, "columns of a picture, if tokens are pixels", 0, 1 << 14);
  options.add("image.channels", config.image_channels,
              "tokens per pixel: 1 (grey) or 3 (red, green, blue); without it those of the data", 1, 3);
  options.add("model.encoder_layers", config.encoder_layers,
              "layers of an encoder over a source, to which every layer attends; 0: none", 0, 1000);
  options.add("model.source_length", config.source_length, "tokens of a source; 0: without an encoder", 0,
              most_length);
  options.add("model.source_vocabulary", config.source_vocabulary,
              "number of tokens of a source; 0: as model.vocabulary", 0, most_vocabulary);
}

namespace {

/// Throws UsageError where an encoder does not go with the rest.
void check_encoder(const ModelConfig& config) {
  if (!config.has_encoder()) {
    if (config.source_length != 0 || config.source_vocabulary != 0)
      fail<UsageError>("model",
                       "expected model.encoder_layers of at least 1 with model.source_length and "
                       "model.source_vocabulary, got 0");
    return;
  }
  const auto refuse = [](const char* expected, const std::string& got) {
    fail<UsageError>("model", "expected {} with model.encoder_layers, got {}", expected, got);
  };
  if (!config.shifted())
    refuse("model.objective = \"next-token\"", fmt::format("\"{}\"", name_of(config.objective)));
  if (config.field_sizes().size() != 1) refuse("one field of tokens", fmt::format("\"{}\"", config.fields));
  if (config.columns > 0) refuse("steps of tokens alone", fmt::format("{} columns", config.columns));
  if (config.classes > 0) refuse("model.classes = 0", fmt::format("{}", config.classes));
  if (config.image_height > 0) refuse("no picture", fmt::format("image.height = {}", config.image_height));
  if (!config.attention.layers.empty())
    refuse("attention.family for all layers",
           fmt::format("attention.layers = \"{}\"", config.attention.layers));
  if (config.attention.family != Family::linear && config.attention.family != Family::softmax)
    refuse("attention.family = \"linear\" or \"softmax\"",
           fmt::format("\"{}\"", name_of(config.attention.family)));
  if (config.source_length < 1) refuse("model.source_length of at least 1", "0");
  if (config.source_tokens() < 2)
    refuse("model.source_vocabulary of at least 2", fmt::format("{}", config.source_vocabulary));
}

/// Throws UsageError where tokens, real numbers and the objective do not go together.
void check_steps(const ModelConfig& config) {
  const std::vector<std::int64_t> sizes = config.field_sizes();
  const auto several = [&] { return sizes.size() > 1; };
  if (sizes.empty() && config.columns == 0)
    fail<UsageError>("model",
                     "expected model.vocabulary of at least 2 or model.columns of at least 1, got a model "
                     "without inputs");
  for (const std::int64_t size : sizes)
    if (size < 2)
      fail<UsageError>("model", "expected {} of at least 2, got {}",
                       config.fields.empty() ? "model.vocabulary" : "values of each of model.fields", size);
  if (!sizes.empty() && *std::ranges::max_element(sizes) != config.vocabulary)
    fail<UsageError>("model", "expected model.vocabulary to be the largest of model.fields, {}, got {}",
                     *std::ranges::max_element(sizes), config.vocabulary);
  if (several() && (config.tied_output || config.head != OutputDistribution::categorical))
    fail<UsageError>("model", "expected a categorical head of its own with several fields, got {}",
                     config.tied_output ? "model.tied_output" : "model.head = \"logistics\"");
  if (config.masked() && config.columns > 0)
    fail<UsageError>("model",
                     "expected steps of tokens alone with model.objective = \"masked\", got {} columns",
                     config.columns);
  if (config.objective == Objective::same_step && config.target_count() == 0)
    fail<UsageError>("model",
                     "expected model.targets or model.columns of at least 1 with model.objective = "
                     "\"same-step\", got neither");
  if (config.classifies() && config.classes < 2)
    fail<UsageError>("model",
                     "expected model.classes of at least 2 with model.objective = \"classify\", got {}",
                     config.classes);
  if (config.columns == 0 && config.targets > 0 && config.objective != Objective::same_step)
    fail<UsageError>("model", "expected model.targets = 0 for a model without columns, got {}",
                     config.targets);
  const bool from_steps = config.shifted() || config.objective == Objective::same_step;
  if (config.relative && (config.columns == 0 || !from_steps))
    fail<UsageError>("model",
                     "expected model.columns of at least 1 and model.objective = \"next-token\" or "
                     "\"same-step\" with model.relative, got {} columns and \"{}\"",
                     config.columns, name_of(config.objective));
  if (config.relative_inputs && (config.columns == 0 || !config.shifted()))
    fail<UsageError>("model",
                     "expected model.columns of at least 1 and model.objective = \"next-token\" with "
                     "model.relative_inputs, got {} columns and \"{}\"",
                     config.columns, name_of(config.objective));
  if (config.columns % config.patch != 0)
    fail<UsageError>("model", "expected model.columns to be a multiple of model.patch = {}, got {}",
                     config.patch, config.columns);
  if (config.bidirectional && (config.shifted() || config.masked()))
    fail<UsageError>("model",
                     "expected model.objective = \"classify\" or \"same-step\" with model.bidirectional, got "
                     "\"{}\"",
                     name_of(config.objective));
}

}  // namespace

void ModelConfig::check() const {
  ModelConfig copy = *this;
  Options options;
  add_options(options, copy);
  options.check("model configuration");
  linnet::check(attention, sequence_of(*this), layers);
  check_steps(*this);
  check_encoder(*this);
  if (masked() && classes > 0)
    fail<UsageError>("model", "expected model.classes = 0 with model.objective = \"masked\", got {}",
                     classes);
  if (width % heads != 0)
    fail<UsageError>("model", "expected model.heads to divide model.width, got {} heads and width {}", heads,
                     width);
  if (width / heads > 1024)
    fail<UsageError>("model", "expected heads of at most 1,024 numbers, got {} (width {} over {} heads)",
                     width / heads, width, heads);
  if (positions == Positions::rotary && width / heads % 2 != 0)
    fail<UsageError>(
        "model",
        "expected heads of an even number of dimensions with model.positions = \"rotary\", got {} "
        "(width {} over {} heads)",
        width / heads, width, heads);
  if (tied_output && head != OutputDistribution::categorical)
    fail<UsageError>("model", "expected model.head = \"categorical\" with model.tied_output, got \"{}\"",
                     name_of(head));
  if ((image_height == 0) != (image_width == 0))
    fail<UsageError>("model", "expected image.height and image.width both or neither, got {} and {}",
                     image_height, image_width);
  if (image_channels != 1 && image_channels != 3)
    fail<UsageError>("model", "expected image.channels of 1 or 3, got {}", image_channels);
  if (image_height != 0 && image_height * image_width * image_channels != length)
    fail<UsageError>("model",
                     "expected image.height · image.width · image.channels to be model.length, got {} · {} · "
                     "{} and {}",
                     image_height, image_width, image_channels, length);
}

void ModelConfig::check_generates() const {
  if (masked())
    fail<UsageError>("generate",
                     "expected a model that predicts the next token, got an encoder (model.objective = "
                     "\"masked\"), which fills in masked tokens and does not generate");
  if (!shifted())
    fail<UsageError>("generate",
                     "expected a model that predicts the next step (model.objective = \"next-token\"), got "
                     "\"{}\"",
                     name_of(objective));
}

std::vector<std::int64_t> ModelConfig::field_sizes() const {
  if (fields.empty()) return vocabulary > 0 ? std::vector{vocabulary} : std::vector<std::int64_t>{};
  const auto sizes = whole_numbers(fields, 1, most_vocabulary);
  if (!sizes)
    fail<UsageError>("model", "expected model.fields to be numbers in 1 … {} separated by commas, got \"{}\"",
                     most_vocabulary, shortened(fields));
  if (sizes->size() > most_fields)
    fail<UsageError>("model", "expected at most {} fields in model.fields, got {}", most_fields,
                     sizes->size());
  return *sizes;
}

std::int64_t ModelConfig::input_fields() const {
  return std::max<std::int64_t>(std::ssize(field_sizes()), shifted() ? 1 : 0);
}

namespace {

/// Values of the first field, 0 where there is none. Allocates nothing: a stream is begun without memory.
std::int64_t first_field(const ModelConfig& config) {
  std::int64_t size = config.vocabulary;
  const char* at = config.fields.data();
  while (*at == ' ') ++at;
  std::from_chars(at, config.fields.data() + config.fields.size(), size);
  return size;
}

}  // namespace

std::int64_t ModelConfig::input_tokens() const {
  const std::int64_t values = first_field(*this);
  if (masked()) return values + 1;
  return values + (shifted() ? std::max<std::int64_t>(classes, 1) : 0);
}

std::int32_t ModelConfig::first_input(std::int64_t label) const {
  if (classes == 0 && label != -1)
    fail<UsageError>("model", "expected no label for a model without classes, got {}", label);
  if (classes > 0 && (label < 0 || label >= classes))
    fail<UsageError>("model", "expected a label in 0 … {}, got {}", classes - 1, label);
  return static_cast<std::int32_t>(first_field(*this) + std::max<std::int64_t>(label, 0));
}

}  // namespace linnet
