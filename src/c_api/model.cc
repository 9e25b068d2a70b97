#include "linnet/model.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "c_api/c_boundary.h"
#include "c_api/handles.h"
#include "linnet/c_api.h"
#include "model/files.h"

namespace linnet {
namespace {

/// The text that `body` returns, NULL where it throws.
template <class Body>
const char* text_or_null(const Body& body) {
  return guarded_value<const char*>(nullptr, body);
}

/// [batch · length · each] numbers of steps. Throws UsageError for sizes that cannot be.
template <class T>
std::span<T> numbers_of_steps(const char* operation, const char* what, T* pointer, int64_t batch,
                              int64_t length, int64_t each) {
  if (batch < 1 || length < 1)
    fail<UsageError>(operation, "expected at least 1 sequence of at least 1 step, got {} of {}", batch,
                     length);
  constexpr int64_t most = int64_t{1} << 40;  // whose products with other sizes fit 64 bits
  if (batch > most / length)
    fail<UsageError>(operation, "expected at most {} steps, got {} · {}", most, batch, length);
  return rows(operation, what, pointer, static_cast<size_t>(batch * length), static_cast<size_t>(each));
}

/// What a caller gives of sequences of any kind: as much as the model takes.
Steps steps_of(const char* operation, const ModelConfig& config, const int32_t* tokens, const float* values,
               int64_t batch, int64_t length, const int64_t* key_lengths) {
  return {.batch = batch,
          .length = length,
          .tokens = numbers_of_steps(operation, "tokens", tokens, batch, length, config.input_fields()),
          .values = numbers_of_steps(operation, "values", values, batch, length, config.columns),
          .key_lengths = {key_lengths, key_lengths == nullptr ? 0 : static_cast<size_t>(batch)}};
}

/// Where the results go. Throws UsageError where the caller has memory for another number than `needed`,
/// which is 0 for a model that refuses the call itself.
std::span<float> results(const char* operation, const char* what, float* memory, size_t count,
                         size_t needed) {
  if (needed == 0) return {};
  if (count != needed) fail<UsageError>(operation, "expected memory for {} {}, got {}", needed, what, count);
  return elements(operation, what, memory, count);
}

}  // namespace
}  // namespace linnet

using linnet::elements;
using linnet::given;
using linnet::guarded;
using linnet::guarded_value;

linnet_status linnet_model_load(const char* folder, linnet_model** model) {
  return guarded([&] {
    given("model", "where to put the model", model) = nullptr;
    given("model", "a folder", folder);
    auto loaded = linnet::Model::load(folder);
    std::string config = linnet::config_text(loaded->config());
    *model = new linnet_model{std::move(loaded), std::move(config)};
  });
}

void linnet_model_free(linnet_model* model) { delete model; }

int64_t linnet_model_vocabulary(const linnet_model* model) {
  return guarded_value<int64_t>(-1, [&]() -> int64_t {
    const linnet::ModelConfig& config = given("vocabulary", "a model", model).model->config();
    const std::vector<int64_t> sizes = config.field_sizes();
    return sizes.empty() ? 0 : sizes.front();
  });
}

int64_t linnet_model_fields(const linnet_model* model) {
  return guarded_value<int64_t>(
      -1, [&] { return std::ssize(given("fields", "a model", model).model->config().field_sizes()); });
}

int64_t linnet_model_field_vocabulary(const linnet_model* model, int64_t field) {
  return guarded_value<int64_t>(-1, [&] {
    const std::vector<int64_t> sizes = given("vocabulary", "a model", model).model->config().field_sizes();
    if (field < 0 || field >= std::ssize(sizes))
      linnet::fail<linnet::UsageError>("vocabulary", "expected a field in 0 … {}, got {}",
                                       std::ssize(sizes) - 1, field);
    return sizes[static_cast<size_t>(field)];
  });
}

int64_t linnet_model_source_vocabulary(const linnet_model* model) {
  return guarded_value<int64_t>(-1, [&] {
    const linnet::ModelConfig& config = given("source vocabulary", "a model", model).model->config();
    return config.has_encoder() ? config.source_tokens() : 0;
  });
}

int64_t linnet_model_classes(const linnet_model* model) {
  return guarded_value<int64_t>(-1,
                                [&] { return given("classes", "a model", model).model->config().classes; });
}

int64_t linnet_model_columns(const linnet_model* model) {
  return guarded_value<int64_t>(-1,
                                [&] { return given("columns", "a model", model).model->config().columns; });
}

int64_t linnet_model_targets(const linnet_model* model) {
  return guarded_value<int64_t>(
      -1, [&] { return given("targets", "a model", model).model->config().target_count(); });
}

int64_t linnet_model_width(const linnet_model* model) {
  return guarded_value<int64_t>(-1, [&] { return given("width", "a model", model).model->config().width; });
}

const char* linnet_model_config(const linnet_model* model) {
  return linnet::text_or_null([&] { return given("config", "a model", model).config.c_str(); });
}

const char* linnet_model_class_name(const linnet_model* model, int64_t label) {
  return linnet::text_or_null([&]() -> const char* {
    const linnet::Model& own = *given("class name", "a model", model).model;
    if (own.config().classes == 0)
      linnet::fail<linnet::UsageError>("class name", "expected a model with labels, got one without");
    if (label < 0 || label >= own.config().classes)
      linnet::fail<linnet::UsageError>("class name", "expected a label in 0 … {}, got {}",
                                       own.config().classes - 1, label);
    const std::vector<std::string>& names = own.assets().class_names;
    return names.empty() ? nullptr : names[static_cast<size_t>(label)].c_str();
  });
}

const char* linnet_model_columns_json(const linnet_model* model) {
  return linnet::text_or_null([&]() -> const char* {
    const std::string& columns = given("columns", "a model", model).model->assets().columns;
    return columns.empty() ? nullptr : columns.c_str();
  });
}

linnet_status linnet_model_first_input(const linnet_model* model, int64_t label, int32_t* token) {
  return guarded([&] {
    int32_t& found = given("first input", "where to put the token", token);
    found = given("first input", "a model", model).model->config().first_input(label);
  });
}

linnet_status linnet_model_forward(const linnet_model* model, int32_t threads, const int32_t* tokens,
                                   int64_t batch, int64_t length, const int64_t* key_lengths, float* logits,
                                   size_t count) {
  return guarded([&] {
    const linnet_model& handle = given("forward", "a model", model);
    const linnet::Model& own = *handle.model;
    const std::span<float> to = elements("forward", "where to put the logits", logits, count);
    if (own.config().vocabulary == 0)
      linnet::fail<linnet::UsageError>("forward", "expected a model of tokens, got one of real numbers");
    const auto vocabulary = static_cast<size_t>(own.config().vocabulary), inputs = to.size() / vocabulary;
    if (batch < 1 || length < 1 || inputs * vocabulary != to.size() ||
        inputs / static_cast<size_t>(length) != static_cast<size_t>(batch) ||
        inputs % static_cast<size_t>(length) != 0)
      linnet::fail<linnet::UsageError>("forward", "expected memory for {} · {} · {} logits, got {}", batch,
                                       length, vocabulary, to.size());
    const std::span<const int64_t> lengths(key_lengths,
                                           key_lengths == nullptr ? 0 : static_cast<size_t>(batch));
    const std::span<const int32_t> from = elements("forward", "tokens", tokens, inputs);
    linnet::with_context(handle, threads, [&](linnet::Context& context) {
      std::ranges::copy(own.forward(context, from, batch, length, lengths).span<float>(), to.begin());
    });
  });
}

linnet_status linnet_model_score(const linnet_model* model, int32_t threads, const int32_t* tokens,
                                 size_t count, int64_t label, float* log_probabilities) {
  return guarded([&] {
    const linnet_model& own = given("score", "a model", model);
    const std::span<float> to =
        elements("score", "where to put the log-probabilities", log_probabilities, count);
    const std::span<const int32_t> from = elements("score", "tokens", tokens, count);
    linnet::with_context(own, threads, [&](linnet::Context& context) {
      std::ranges::copy(own.model->score(context, from, label), to.begin());
    });
  });
}

linnet_status linnet_model_score_with_source(const linnet_model* model, int32_t threads,
                                             const int32_t* source, size_t source_count,
                                             const int32_t* tokens, size_t count, float* log_probabilities) {
  return guarded([&] {
    const linnet_model& own = given("score", "a model", model);
    const std::span<float> to =
        elements("score", "where to put the log-probabilities", log_probabilities, count);
    const std::span<const int32_t> of_source = elements("score", "tokens of a source", source, source_count),
                                   from = elements("score", "tokens", tokens, count);
    linnet::with_context(own, threads, [&](linnet::Context& context) {
      std::ranges::copy(own.model->score(context, of_source, from), to.begin());
    });
  });
}

linnet_status linnet_model_hidden(const linnet_model* model, int32_t threads, const int32_t* tokens,
                                  const float* values, int64_t batch, int64_t length,
                                  const int64_t* key_lengths, float* hidden, size_t count) {
  return guarded([&] {
    const linnet_model& own = given("hidden", "a model", model);
    const linnet::ModelConfig& config = own.model->config();
    const linnet::Steps steps =
        linnet::steps_of("hidden", config, tokens, values, batch, length, key_lengths);
    const std::span<float> to = linnet::results("hidden", "numbers of rows", hidden, count,
                                                static_cast<size_t>(batch * length * config.width));
    linnet::with_context(own, threads, [&](linnet::Context& context) {
      std::ranges::copy(own.model->hidden(context, steps).span<float>(), to.begin());
    });
  });
}

linnet_status linnet_model_classify(const linnet_model* model, int32_t threads, const int32_t* tokens,
                                    const float* values, int64_t batch, int64_t length,
                                    const int64_t* key_lengths, float* probabilities, size_t count) {
  return guarded([&] {
    const linnet_model& own = given("classify", "a model", model);
    const linnet::ModelConfig& config = own.model->config();
    const linnet::Steps steps =
        linnet::steps_of("classify", config, tokens, values, batch, length, key_lengths);
    const std::span<float> to = linnet::results("classify", "probabilities", probabilities, count,
                                                static_cast<size_t>(batch * config.classes));
    linnet::with_context(own, threads, [&](linnet::Context& context) {
      std::ranges::copy(own.model->classify(context, steps).span<float>(), to.begin());
    });
  });
}

linnet_status linnet_model_predict(const linnet_model* model, int32_t threads, const int32_t* tokens,
                                   const float* values, int64_t batch, int64_t length,
                                   const int64_t* key_lengths, float* mean, float* scale, float* freedom,
                                   size_t count) {
  return guarded([&] {
    const linnet_model& own = given("predict", "a model", model);
    const linnet::ModelConfig& config = own.model->config();
    const linnet::Steps steps =
        linnet::steps_of("predict", config, tokens, values, batch, length, key_lengths);
    const auto needed = static_cast<size_t>(batch * length * config.target_count());
    const std::span<float> means = linnet::results("predict", "means", mean, count, needed),
                           scales = linnet::results("predict", "scales", scale, count, needed),
                           freedoms =
                               linnet::results("predict", "degrees of freedom", freedom, count, needed);
    linnet::with_context(own, threads, [&](linnet::Context& context) {
      const linnet::Densities found = own.model->predict(context, steps);
      std::ranges::copy(found.mean.span<float>(), means.begin());
      std::ranges::copy(found.scale.span<float>(), scales.begin());
      std::ranges::copy(found.freedom.span<float>(), freedoms.begin());
    });
  });
}
