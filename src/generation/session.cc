#include <algorithm>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/float_mode.h"
#include "base/workspace.h"
#include "generation/prompts.h"
#include "generation/snapshot.h"
#include "generation/streams.h"
#include "generation/token_steps.h"
#include "kernels/loss.h"
#include "linnet/generation.h"
#include "model/access.h"
#include "model/transformer.h"

namespace linnet {

struct Session::Impl {
  using Stream = TokenStream;

  Impl(std::shared_ptr<const Model> model, std::int64_t streams, const Options& options)
      : model(std::move(model)),
        options(options),
        sizes(this->model->config().field_sizes()),
        fields(std::ssize(sizes)),
        context(options.threads),
        steps(network_of(*this->model)),
        parallel(network_of(*this->model)),
        streams("session", streams) {
    if (options.cache) {
      state = RecurrentState(network(), streams, options.capacity);
      side_state = RecurrentState(network(), 1, options.capacity);
    }
  }

  void begin_by_itself(std::int64_t index) {
    SamplingOptions sampling;
    sampling.seed = static_cast<std::uint64_t>(index);
    begin(index, own_label(), sampling);
  }

  /// The label of streams that were never begun by the caller.
  std::int64_t own_label() const { return model->config().classes > 0 ? 0 : -1; }

  void begin(std::int64_t index, std::int64_t label, const SamplingOptions& sampling) {
    begin_stream(index, label, sampling);
    if (options.cache) state.reset(index);
  }

  /// All but the state.
  void begin_stream(std::int64_t index, std::int64_t label, const SamplingOptions& sampling) {
    Stream& chosen = streams.at(index);
    const std::int32_t first = model->config().first_input(label);
    chosen.next_input.assign(static_cast<std::size_t>(fields), first);
    for (std::size_t f = 1; f < chosen.next_input.size(); ++f)
      chosen.next_input[f] = static_cast<std::int32_t>(sizes[f]);
    chosen.sampling = sampling;
    chosen.position = 0;
    chosen.history.clear();
    chosen.broken = false;
  }

  /// The encoder's pass and what all layers keep of it come before any change of the stream.
  void begin(std::int64_t index, std::span<const std::int32_t> source, const SamplingOptions& sampling) {
    const ModelConfig& config = model->config();
    streams.at(index);
    if (!config.has_encoder())
      fail<UsageError>("begin",
                       "expected an encoder–decoder model (model.encoder_layers) for a source, got a "
                       "model without an encoder");
    if (source.empty()) fail<UsageError>("begin", "expected a source of at least 1 token, got none");
    for (const std::int32_t token : source)
      if (token < 0 || token >= config.source_tokens())
        fail<UsageError>("begin", "expected source tokens in 0 … {}, got {}", config.source_tokens() - 1,
                         token);
    const Memory memory = parallel.encode(context, {source, 1, std::ssize(source), {}});
    side_state.reset(0);
    side_state.summarise(context, network(), memory);
    state.copy(index, side_state, 0);
    begin_stream(index, -1, sampling);
  }

  const Network& network() const { return network_of(*model); }

  /// A stream that is to be continued.
  Stream& whole_stream(const char* operation, std::int64_t index) {
    Stream& chosen = streams.whole(operation, index);
    check_source(operation, index);
    return chosen;
  }

  /// Whether the stream has the source that this model's decoder attends to, if it does.
  bool has_source(std::int64_t index) const {
    return !model->config().has_encoder() || state.source_tokens(index) > 0;
  }

  void check_source(const char* operation, std::int64_t index) const {
    if (!has_source(index))
      fail(operation,
           "expected a stream with a source, which this model's decoder attends to, got stream {} without: "
           "begin it with one",
           index);
  }

  /// Throws where a stream is none of ours, cannot continue or is named twice.
  void check_once(const char* operation, std::span<const std::int64_t> chosen) {
    streams.check_once(operation, chosen);
    for (const std::int64_t index : chosen) check_source(operation, index);
  }

  /// Throws where the streams cannot all take one more token.
  void check_step(const char* operation, std::size_t tokens, std::span<const std::int64_t> chosen) {
    if (tokens != chosen.size() * static_cast<std::size_t>(fields)) {
      if (fields == 1)
        fail<UsageError>(operation, "expected as many tokens as streams, got {} and {}", tokens,
                         chosen.size());
      fail<UsageError>(operation, "expected {} tokens for each of the streams, got {} for {} streams", fields,
                       tokens, chosen.size());
    }
    check_once(operation, chosen);
    for (const std::int64_t index : chosen)
      check_limit(operation, index, streams.at(index).position, limit());
  }

  std::int64_t limit() const { return network().embedding().limit(); }

  void check_tokens(const char* operation, std::int64_t stream, std::span<const std::int32_t> tokens) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto field = i % sizes.size();
      if (tokens[i] >= 0 && tokens[i] < sizes[field]) continue;
      if (fields == 1)
        fail<UsageError>(operation, "expected tokens in 0 … {}, got {} in stream {}", sizes[field] - 1,
                         tokens[i], stream);
      fail<UsageError>(operation, "expected tokens of field {} in 0 … {}, got {} in stream {}", field,
                       sizes[field] - 1, tokens[i], stream);
    }
  }

  /// Calls body(own, first, count, block) for blocks of the streams that are stepped. The memory of their
  /// states is taken before: where there is too little, no stream has moved.
  template <class Body>
  void for_blocks(std::span<const std::int64_t> chosen, const Body& body) {
    for (const std::int64_t index : chosen) state.reserve(index, streams.at(index).position + 1);
    const std::int64_t block = block_of(std::ssize(chosen), context.threads(), model->config().weights);
    streams.in_blocks(context, state, chosen, block, body);
  }

  /// Takes what steps of `count` streams need.
  void reserve(std::int64_t count) {
    if (options.cache) steps.reserve(context, count, model->config().first_input(own_label()));
  }

  void step_without_cache(const Draws& draws, std::span<const std::int64_t> slots) {
    Workspace workspace(context);
    const View<float> parameters = workspace.take(1, network().head().outputs());
    // No stream moves before all have drawn their tokens.
    for (std::size_t i = 0; i < slots.size(); ++i) {
      next_parameters(parameters, slots[i]);
      steps.draw_first(context, draws, i, slots[i], streams.at(slots[i]), parameters);
    }
    append_to_histories(draws.tokens, slots);
  }

  /// parameters [1, outputs] of the token that follows the inputs, from all of them.
  void parameters_after(View<float> parameters, std::span<const std::int32_t> inputs) {
    const auto length = static_cast<std::int64_t>(inputs.size());
    const View<const float> hidden = parallel.forward(context, inputs, 1, length);
    network().head().forward(context, parameters,
                             hidden.reshape({length, network().config().width}).slice(0, length - 1, length));
  }

  /// parameters [1, outputs] of the stream's next token; the stream stays where it is.
  void next_parameters(View<float> parameters, std::int64_t index) {
    const Stream& chosen = streams.at(index);
    if (!options.cache) {
      std::vector<std::int32_t> inputs = chosen.history;
      inputs.insert(inputs.end(), chosen.next_input.begin(), chosen.next_input.end());
      return parameters_after(parameters, inputs);
    }
    side_state.copy(0, state, index);
    steps.predict(context, parameters, chosen.next_input, side_state);
  }

  /// Takes what `count` more inputs need.
  static void reserve_history(Stream& stream, std::size_t count) {
    std::vector<std::int32_t>& history = stream.history;
    if (const std::size_t size = history.size() + count; size > history.capacity())
      history.reserve(std::max(size, 2 * history.capacity()));
  }

  /// Of a history with memory for it.
  static void append_to_history(Stream& stream, std::int32_t token) {
    stream.history.push_back(stream.next_input.front());
    stream.append({&token, 1});
  }

  /// A token for each of the streams, or none where memory is short.
  void append_to_histories(std::span<const std::int32_t> tokens, std::span<const std::int64_t> chosen) {
    for (const std::int64_t index : chosen) reserve_history(streams.at(index), 1);
    for (std::size_t i = 0; i < chosen.size(); ++i) append_to_history(streams.at(chosen[i]), tokens[i]);
  }

  void write_logits(const char* operation, std::int64_t index, std::span<float> logits) {
    const std::int64_t vocabulary = network().head().vocabulary();
    if (std::ssize(logits) != vocabulary)
      fail<UsageError>(operation, "expected memory for {} numbers, one per token of the vocabulary, got {}",
                       vocabulary, logits.size());
    check_limit(operation, index, whole_stream(operation, index).position, limit());
    Workspace workspace(context);
    const View<float> parameters = workspace.take(1, network().head().outputs());
    next_parameters(parameters, index);
    if (!all_finite(parameters)) fail_not_finite(operation, index);
    network().head().logits(context, View<float>(logits.data(), {vocabulary}), parameters);
  }

  /// Takes all prompts, none of them empty.
  void prefill(std::vector<Prompt> open) {
    take_prompts(context, network(), parallel, state, side_state, std::move(open), [&](const Prompt& prompt) {
      Stream& moved = streams.at(prompt.stream);
      moved.position = prompt.position;
      moved.next_input = prompt.next_input;
    });
  }

  /// Throws before anything has changed.
  void resize(std::int64_t count) {
    const std::int64_t before = streams.size();
    if (count == before) return;
    reserve(count);
    RecurrentState states;
    if (options.cache) {
      states = RecurrentState(network(), count, options.capacity);
      for (std::int64_t i = 0; i < std::min(before, count); ++i) states.copy(i, state, i);
    }
    Streams<Stream> resized = streams;
    resized.resize(count);
    for (std::int64_t i = before; i < count; ++i)
      resized.at(i).next_input.resize(static_cast<std::size_t>(fields));
    // From here on nothing asks for memory.
    streams = std::move(resized);
    state = std::move(states);
    for (std::int64_t i = before; i < count; ++i) begin_by_itself(i);
  }

  std::shared_ptr<const Model> model;
  Options options;
  const std::vector<std::int64_t> sizes;  ///< values of every field
  const std::int64_t fields;
  Context context;
  TokenSteps steps;
  Transformer parallel;
  RecurrentState state;
  RecurrentState side_state;  ///< of a stream that is being prefilled or looked ahead of
  Streams<Stream> streams;
  ModelSnapshots snapshots{*model};
};

Session::Session(std::shared_ptr<const Model> model, std::int64_t streams, const Options& options) {
  check_given("session", model);
  model->config().check_generates();
  if (const ModelConfig& config = model->config(); config.columns > 0 || config.field_sizes().empty())
    fail<UsageError>("session", "expected a model of tokens, got one of real numbers; see NumberSession");
  if (!options.cache && model->config().field_sizes().size() > 1)
    fail<UsageError>("session", "expected a cache for a model of several fields, got none");
  if (!options.cache && model->config().has_encoder())
    fail<UsageError>("session", "expected a cache for an encoder–decoder model, got none");
  if (options.capacity < 0)
    fail<UsageError>("session", "expected a capacity of at least 0 tokens, got {}", options.capacity);
  check_streams("session", streams);
  impl_ = std::make_unique<Impl>(std::move(model), streams, options);
  for (std::int64_t i = 0; i < streams; ++i) impl_->begin_by_itself(i);
  impl_->reserve(streams);
}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

void Session::begin(std::int64_t stream, std::int64_t label, const SamplingOptions& sampling) {
  sampling.check();
  impl_->begin(stream, label, sampling);
}

void Session::begin(std::int64_t stream, std::span<const std::int32_t> source,
                    const SamplingOptions& sampling) {
  sampling.check();
  const FlushSubnormals flush;
  impl_->begin(stream, source, sampling);
}

void Session::prefill(std::int64_t stream, std::span<const std::int32_t> tokens) {
  const std::span<const std::int32_t> prompts[] = {tokens};
  prefill(std::span(&stream, 1), prompts);
}

void Session::prefill(std::span<const std::int64_t> streams,
                      std::span<const std::span<const std::int32_t>> prompts) {
  if (streams.size() != prompts.size())
    fail<UsageError>("prefill", "expected as many prompts as streams, got {} and {}", prompts.size(),
                     streams.size());
  impl_->check_once("prefill", streams);
  std::vector<Prompt> open;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (prompts[i].empty()) continue;
    if (std::ssize(prompts[i]) % impl_->fields != 0)
      fail<UsageError>("prefill", "expected {} tokens for each step, got {}", impl_->fields,
                       prompts[i].size());
    const std::int64_t position = impl_->streams.at(streams[i]).position;
    check_limit("prefill", streams[i], position + std::ssize(prompts[i]) / impl_->fields - 1, impl_->limit());
    impl_->check_tokens("prefill", streams[i], prompts[i]);
    open.push_back(
        {streams[i], prompts[i], impl_->fields, position, impl_->streams.at(streams[i]).next_input});
  }
  const FlushSubnormals flush;
  if (impl_->options.cache) return impl_->prefill(std::move(open));
  for (const Prompt& prompt : open)
    Impl::reserve_history(impl_->streams.at(prompt.stream), prompt.tokens.size());
  for (const Prompt& prompt : open)
    for (const std::int32_t token : prompt.tokens)
      impl_->append_to_history(impl_->streams.at(prompt.stream), token);
}

void Session::observe(std::span<const std::int32_t> tokens, std::span<const std::int64_t> streams) {
  impl_->check_step("observe", tokens.size(), streams);
  const auto fields = static_cast<std::size_t>(impl_->fields);
  for (std::size_t i = 0; i < streams.size(); ++i)
    impl_->check_tokens("observe", streams[i], tokens.subspan(i * fields, fields));
  if (!impl_->options.cache) return impl_->append_to_histories(tokens, streams);
  const FlushSubnormals flush;
  impl_->for_blocks(streams, [&](Context& own, std::size_t first, std::size_t count, std::int64_t block) {
    impl_->steps.observe(own, block, tokens.subspan(first * fields, count * fields),
                         streams.subspan(first, count), impl_->streams, impl_->state);
  });
}

void Session::observe(std::span<const std::int32_t> tokens) { observe(tokens, impl_->streams.all()); }

void Session::logits(std::int64_t stream, std::span<float> logits) {
  const FlushSubnormals flush;
  impl_->write_logits("logits", stream, logits);
}

void Session::probabilities(std::int64_t stream, std::span<float> probabilities) {
  const FlushSubnormals flush;
  impl_->write_logits("probabilities", stream, probabilities);
  const View<float> row(probabilities.data(), {1, static_cast<std::int64_t>(probabilities.size())});
  kernels::softmax_rows(impl_->context, row, row);
}

void Session::resize(std::int64_t streams) {
  check_streams("session", streams);
  impl_->resize(streams);
}

void Session::step(std::span<std::int32_t> tokens, std::span<const std::int64_t> streams,
                   const StepOptions& options) {
  impl_->check_step("step", tokens.size(), streams);
  if (!options.log_probabilities.empty() && options.log_probabilities.size() != tokens.size())
    fail<UsageError>("step", "expected memory for {} log-probabilities, one per token, got {}", tokens.size(),
                     options.log_probabilities.size());
  const Draws draws{tokens, options.log_probabilities, options.process_logits};
  const FlushSubnormals flush;
  if (!impl_->options.cache) return impl_->step_without_cache(draws, streams);
  const auto fields = static_cast<std::size_t>(impl_->fields);
  impl_->for_blocks(streams, [&](Context& own, std::size_t first, std::size_t count, std::int64_t block) {
    impl_->steps.draw(own, block, draws.of(first, count, fields), streams.subspan(first, count),
                      impl_->streams, impl_->state);
  });
}

void Session::step(std::span<std::int32_t> tokens, std::span<const std::int64_t> streams) {
  step(tokens, streams, StepOptions{});
}

void Session::step(std::span<std::int32_t> tokens, const StepOptions& options) {
  step(tokens, impl_->streams.all(), options);
}

void Session::step(std::span<std::int32_t> tokens) { step(tokens, impl_->streams.all()); }

void Session::set_sampling(std::int64_t stream, const SamplingOptions& sampling) {
  sampling.check();
  impl_->streams.at(stream).sampling = sampling;
}

SamplingOptions Session::sampling(std::int64_t stream) const { return impl_->streams.at(stream).sampling; }

void Session::fork(std::int64_t stream, std::int64_t source, std::uint64_t seed) {
  Impl::Stream& target = impl_->streams.at(stream);
  Impl::Stream copy = impl_->whole_stream("fork", source);
  copy.sampling.seed = seed;
  if (impl_->options.cache && stream != source) impl_->state.copy(stream, impl_->state, source);
  target = std::move(copy);
}

std::vector<std::byte> Session::save(std::int64_t stream) const {
  const Impl::Stream& chosen = impl_->whole_stream("save", stream);
  Snapshot snapshot;
  snapshot.cache = impl_->options.cache;
  snapshot.model = impl_->snapshots.fingerprint();
  snapshot.position = chosen.position;
  snapshot.next_input = chosen.next_input.front();
  snapshot.sampling = chosen.sampling;
  if (snapshot.cache) {
    snapshot.past = impl_->state.save(stream);
    const auto later = std::as_bytes(std::span(chosen.next_input).subspan(1));
    snapshot.past.insert(snapshot.past.end(), later.begin(), later.end());
  } else {
    const auto history = std::as_bytes(std::span(chosen.history));
    snapshot.past.assign(history.begin(), history.end());
  }
  return snapshot.bytes();
}

void Session::restore(std::int64_t stream, std::span<const std::byte> bytes) {
  Impl::Stream& chosen = impl_->streams.at(stream);
  const Snapshot snapshot = impl_->snapshots.read(bytes);
  if (snapshot.prediction) fail("restore", "expected a snapshot of a stream of tokens, got one of numbers");
  if (snapshot.cache != impl_->options.cache)
    fail("restore", "expected a snapshot {} a cache, as this session has it, got one {}",
         impl_->options.cache ? "with" : "without", snapshot.cache ? "with" : "without");
  snapshot.sampling.check();
  if (snapshot.next_input >= impl_->model->config().input_tokens())
    fail("restore", "expected an input below {}, got {}", impl_->model->config().input_tokens(),
         snapshot.next_input);
  std::vector<std::int32_t> history(snapshot.cache ? 0 : snapshot.past.size() / sizeof(std::int32_t));
  std::vector<std::int32_t> next_input(static_cast<std::size_t>(impl_->fields), snapshot.next_input);
  if (snapshot.cache) {
    const auto later = std::as_writable_bytes(std::span(next_input).subspan(1));
    if (snapshot.past.size() < later.size())
      fail("restore", "expected {} bytes at least, got {}", later.size(), snapshot.past.size());
    const auto past = std::span(snapshot.past).first(snapshot.past.size() - later.size());
    std::ranges::copy(std::span(snapshot.past).last(later.size()), later.begin());
    for (std::size_t f = 1; f < next_input.size(); ++f)
      if (next_input[f] < 0 || next_input[f] > impl_->sizes[f])
        fail("restore", "expected an input of field {} in 0 … {}, got {}", f, impl_->sizes[f], next_input[f]);
    // The last layer may refuse what the first ones have taken.
    impl_->side_state.restore(0, past, snapshot.position);
    impl_->state.copy(stream, impl_->side_state, 0);
  } else {
    if (snapshot.past.size() != sizeof(std::int32_t) * static_cast<std::size_t>(snapshot.position))
      fail("restore", "expected {} inputs, got {} bytes", snapshot.position, snapshot.past.size());
    std::ranges::copy(snapshot.past, std::as_writable_bytes(std::span(history)).begin());
    for (const std::int32_t input : history)
      if (input < 0 || input >= impl_->model->config().input_tokens())
        fail("restore", "expected inputs in 0 … {}, got {}", impl_->model->config().input_tokens() - 1,
             input);
  }
  chosen.history = std::move(history);
  chosen.position = snapshot.position;
  chosen.next_input = std::move(next_input);
  chosen.sampling = snapshot.sampling;
  chosen.broken = false;
}

std::int64_t Session::streams() const { return impl_->streams.size(); }

std::int64_t Session::position(std::int64_t stream) const { return impl_->streams.at(stream).position; }

std::int64_t Session::limit() const { return impl_->limit(); }

bool Session::can_continue(std::int64_t stream) const {
  const Impl::Stream& chosen = impl_->streams.at(stream);
  return !chosen.broken && impl_->has_source(stream) && chosen.position < limit();
}

std::size_t Session::state_bytes(std::int64_t stream) const {
  const Impl::Stream& chosen = impl_->streams.at(stream);
  if (!impl_->options.cache) return chosen.history.size() * sizeof(std::int32_t);
  return impl_->state.bytes(stream) + (chosen.next_input.size() - 1) * sizeof(std::int32_t);
}

}  // namespace linnet
