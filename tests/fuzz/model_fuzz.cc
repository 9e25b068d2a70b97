// A config.json, from which a model is made that trains for two updates, computes in all its forms and is
// saved and loaded. The first byte chooses seeds and lengths.

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "fuzz.h"
#include "io/file.h"
#include "linnet/generation.h"
#include "linnet/training.h"
#include "model/files.h"
#include "model/network.h"
#include "model/training_transformer.h"
#include "models.h"

namespace linnet::fuzz {
namespace {

/// Larger models are made up to their table of parameters and no further.
constexpr std::int64_t most_parameters = 50'000;
constexpr double most_floats_per_token = 50'000;

std::vector<std::int32_t> tokens_of(const ModelConfig& config, std::int64_t count, std::uint8_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>((i * i + seed * i + seed / 3) % config.vocabulary));
  return tokens;
}

void generate(const std::shared_ptr<const Model>& model, std::span<const std::int32_t> prompt) {
  Session session(model, 3, {.threads = 1});
  session.prefill(0, prompt);
  session.observe(prompt.first(1), std::vector<std::int64_t>{1});
  std::vector<std::int32_t> drawn(3);
  session.step(drawn);
  const std::vector<std::byte> saved = session.save(0);
  session.step(drawn);
  const std::int32_t after = drawn[0];
  session.restore(2, saved);
  session.step(drawn);
  if (drawn[2] != after) report("expected a restored stream to continue as the saved one");
  session.fork(1, 0, 7);
  session.resize(4);
  drawn.resize(4);
  session.step(drawn);
}

void train(Context& context, const ModelConfig& config, std::span<const std::int32_t> tokens,
           std::int64_t length) {
  TrainingOptions options;
  options.accumulate = 2;
  Trainer trainer(context, config, options);
  const std::int64_t examples = std::ssize(tokens) / length;
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(examples), length);
  for (int step = 0; step < 2; ++step) trainer.step({examples, length, tokens, tokens, {}});
  if (config.masked()) trainer.step({examples, length, tokens, tokens, lengths});
}

}  // namespace

void answer(std::string_view input) {
  const std::uint8_t choice = take_choice(input);
  const auto& folder = empty_folder();
  const ModelConfig config = read_config(put(folder / config_file, input));
  std::int64_t size = 0;
  {
    const Network network(config);
    size = network.table().size();
  }
  if (size > most_parameters || TrainingTransformer::floats_per_token(config) > most_floats_per_token) return;

  Context context(1);
  const auto random = Model::random(config, choice);
  random->save(folder);
  const auto model = read_again([&] { return Model::load(folder); });
  const std::int64_t length = std::min<std::int64_t>(config.length, 1 + choice % 37), batch = 2;
  const std::vector<std::int32_t> tokens = tokens_of(config, batch * length, choice);
  const Tensor logits = model->forward(context, tokens, batch, length);
  if (std::ranges::any_of(logits.span<float>(), [](float x) { return std::isnan(x); }))
    report("expected numbers from a random model, got NaN");
  const std::span<const std::int32_t> one = std::span(tokens).first(static_cast<std::size_t>(length));
  if (config.masked()) {
    std::vector<std::int32_t> hidden = tokens;
    hidden[0] = -1;
    model->fill(context, hidden, batch, length);
  } else {
    model->score(context, one, config.classes > 0 ? 0 : -1);
  }
  if (config.weights == WeightType::f32) train(context, config, tokens, length);
  // Positions of pictures and learned ones end with the length.
  if (has_recurrent_form(config) && config.length > 8)
    generate(model, one.first(static_cast<std::size_t>(std::min<std::int64_t>(length, 5))));
}

std::vector<std::string> seeds() {
  std::vector<std::string> result;
  int choice = 0;
  for (const auto& list : {generating(), others()})
    for (const std::vector<std::string>& settings : list) {
      const auto& folder = empty_folder();
      Model::random(tiny_config(settings))->save(folder);
      result.push_back(with_choice(choice += 7, read_file(folder / config_file)));
    }
  return result;
}

std::vector<std::string> words() {
  ModelConfig config;
  Options options;
  add_options(options, config);
  std::vector<std::string> result = words_of(options);
  for (const char* word : {"null",         "[]",
                           "{}",           "9223372036854775807",
                           "1e308",        "1e-300",
                           "-1",           "0.5",
                           "4294967296",   "elu",
                           "relu",         "squared-relu",
                           "exp",          "identity",
                           "favor",        "favor-trig",
                           "favor-sincos", "favor-hyperbolic",
                           "random-relu",  "random-cos",
                           "random-exp",   "polynomial",
                           "gaussian"})
    result.push_back(word);
  return result;
}

}  // namespace linnet::fuzz
