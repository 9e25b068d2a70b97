#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/context_impl.h"
#include "base/fail.h"
#include "base/float_mode.h"
#include "base/parallel.h"
#include "base/workspace.h"
#include "generation/sampler.h"
#include "generation/snapshot.h"
#include "linnet/generation.h"
#include "model/transformer.h"

namespace linnet {
namespace {

/// Streams that one thread takes through all layers together. Rows do not influence each other, so the split
/// may follow the number of threads.
constexpr std::int64_t most_block = 64;

/// Up to so many streams reading the weights takes longer than anything else: they stay together, and all
/// threads share their products.
constexpr std::int64_t most_together = 8;

constexpr std::int64_t most_streams = 1 << 20;

}  // namespace

struct Session::Impl {
  struct Stream {
    SamplingOptions sampling;
    std::int32_t next_input = 0;        ///< appended, but not yet seen by the state
    std::int64_t position = 0;          ///< tokens appended
    std::vector<std::int32_t> history;  ///< all inputs, without a cache only
  };

  /// What one block of streams needs while it is stepped.
  struct Worker {
    explicit Worker(const Network& network) : sampler(network.head()) {}
    Sampler sampler;
    std::vector<std::int32_t> ids;
  };

  Impl(std::shared_ptr<const Model> model, std::int64_t streams, const Options& options)
      : model(std::move(model)),
        options(options),
        context(options.threads),
        recurrent(this->model->network()),
        parallel(this->model->network()),
        streams(static_cast<std::size_t>(streams)) {
    if (options.cache) {
      state = RecurrentState(network(), streams, options.capacity);
      prompt_state = RecurrentState(network(), 1);
    }
    named.resize(this->streams.size());
    all.resize(this->streams.size());
    std::iota(all.begin(), all.end(), 0);
  }

  const Network& network() const { return model->network(); }

  /// Of the model, taken when it is first asked for.
  std::uint64_t fingerprint() {
    if (!fingerprint_) fingerprint_ = linnet::fingerprint(*model);
    return *fingerprint_;
  }

  Stream& stream(std::int64_t index) {
    if (index < 0 || index >= static_cast<std::int64_t>(streams.size()))
      fail("session", "expected a stream in 0 … {}, got {}", streams.size() - 1, index);
    return streams[static_cast<std::size_t>(index)];
  }

  /// Throws Error where a stream is none of ours, named twice or at the end of its model's positions.
  void check_step(std::span<const std::int64_t> chosen) {
    std::ranges::fill(named, std::uint8_t{0});
    for (const std::int64_t index : chosen) {
      network().embedding().check_position(stream(index).position);
      if (std::exchange(named[static_cast<std::size_t>(index)], std::uint8_t{1}) != 0)
        fail("step", "expected every stream at most once, got stream {} twice", index);
    }
  }

  /// Streams that one thread takes through all layers together where `count` are stepped.
  std::int64_t block_of(std::int64_t count) const {
    const std::int64_t threads = context.threads();
    const std::int64_t share = count <= most_together ? count : (count + threads - 1) / threads;
    return std::clamp<std::int64_t>(share, 1, most_block);
  }

  void step_block(Context& own, std::span<std::int32_t> tokens, std::span<const std::int64_t> slots,
                  Worker& worker) {
    worker.ids.resize(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) worker.ids[i] = streams[slots[i]].next_input;
    Workspace workspace(own);
    const View<float> parameters =
        workspace.take(static_cast<std::int64_t>(slots.size()), network().head().outputs());
    recurrent.step(own, parameters, worker.ids, slots, state);
    for (std::size_t i = 0; i < slots.size(); ++i)
      tokens[i] = append_sample(own, streams[slots[i]], parameters.slice(0, i, i + 1), worker.sampler);
  }

  /// Takes what steps of all streams need: every thread's memory makes a step with as many streams of its
  /// own.
  void reserve(std::int64_t label) {
    if (!options.cache) return;
    const auto count = static_cast<std::int64_t>(streams.size());
    const std::int64_t block = block_of(count), blocks = (count + block - 1) / block;
    while (static_cast<std::int64_t>(workers.size()) < blocks) workers.emplace_back(network());
    RecurrentState nothing(network(), block);
    std::vector<std::int64_t> slots(static_cast<std::size_t>(block));
    std::iota(slots.begin(), slots.end(), 0);
    const std::vector<std::int32_t> ids(slots.size(), model->config().first_input(label));
    for (Worker& worker : workers) worker.ids.reserve(slots.size());
    const auto try_step = [&](Context& own) {
      const FlushSubnormals flush;
      Workspace workspace(own);
      recurrent.step(own, workspace.take(block, network().head().outputs()), ids, slots, nothing);
      for (const std::int64_t slot : slots) nothing.reset(slot);
    };
    try_step(context);
    for (Context& own : context.impl().contexts_of_threads()) try_step(own);
  }

  void step_without_cache(std::span<std::int32_t> tokens, std::span<const std::int64_t> slots) {
    Worker& worker = workers.front();
    for (std::size_t i = 0; i < slots.size(); ++i) {
      Stream& stream = streams[slots[i]];
      stream.history.push_back(stream.next_input);
      const std::int64_t length = static_cast<std::int64_t>(stream.history.size());
      const View<const float> hidden = parallel.forward(context, stream.history, 1, length);
      Workspace workspace(context);
      const View<float> parameters = workspace.take(1, network().head().outputs());
      const std::int64_t width = network().config().width;
      network().head().forward(context, parameters,
                               hidden.reshape({length, width}).slice(0, length - 1, length));
      tokens[i] = append_sample(context, stream, parameters, worker.sampler);
    }
  }

  std::int32_t append_sample(Context& own, Stream& stream, View<const float> parameters, Sampler& sampler) {
    const std::int32_t token = sampler.sample(own, parameters, stream.sampling, stream.position);
    stream.next_input = token;
    ++stream.position;
    return token;
  }

  std::shared_ptr<const Model> model;
  Options options;
  Context context;
  RecurrentTransformer recurrent;
  Transformer parallel;
  RecurrentState state;
  RecurrentState prompt_state;  ///< of the one stream that is being prefilled
  std::vector<Stream> streams;
  std::vector<Worker> workers;
  std::vector<std::int64_t> all;
  std::vector<std::uint8_t> named;  ///< by the step that is being checked
  std::optional<std::uint64_t> fingerprint_;
};

Session::Session(std::shared_ptr<const Model> model, std::int64_t streams, const Options& options) {
  if (options.capacity < 0)
    fail<UsageError>("session", "expected a capacity of at least 0 tokens, got {}", options.capacity);
  if (streams < 1 || streams > most_streams)
    fail<UsageError>("session", "expected 1 … {} streams, got {}", most_streams, streams);
  impl_ = std::make_unique<Impl>(std::move(model), streams, options);
  const std::int64_t label = impl_->model->config().classes > 0 ? 0 : -1;
  for (std::int64_t i = 0; i < streams; ++i) {
    SamplingOptions sampling;
    sampling.seed = static_cast<std::uint64_t>(i);
    begin(i, label, sampling);
  }
  impl_->reserve(label);
}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

void Session::begin(std::int64_t stream, std::int64_t label, const SamplingOptions& sampling) {
  sampling.check();
  Impl::Stream& chosen = impl_->stream(stream);
  chosen.next_input = impl_->model->config().first_input(label);
  chosen.sampling = sampling;
  chosen.position = 0;
  chosen.history.clear();
  if (impl_->options.cache) impl_->state.reset(stream);
}

void Session::prefill(std::int64_t stream, std::span<const std::int32_t> tokens) {
  if (tokens.empty()) return;
  Impl::Stream& chosen = impl_->stream(stream);
  const Network& network = impl_->network();
  const std::int64_t end = chosen.position + static_cast<std::int64_t>(tokens.size());
  network.embedding().check_position(end - 1);
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= network.config().vocabulary)
      fail("prefill", "expected tokens in 0 … {}, got {}", network.config().vocabulary - 1, token);
  }

  std::vector<std::int32_t> inputs = {chosen.next_input};
  inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
  if (impl_->options.cache) {
    impl_->prompt_state.copy(0, impl_->state, stream);
    for (std::int64_t position = chosen.position; position < end;) {
      const std::int64_t stop = std::min(end, (position / prefill_slice + 1) * prefill_slice);
      const auto slice = std::span(inputs).subspan(position - chosen.position, stop - position);
      impl_->parallel.forward(impl_->context, slice, 1, stop - position, position, &impl_->prompt_state,
                              &impl_->prompt_state);
      position = stop;
    }
    impl_->state.copy(stream, impl_->prompt_state, 0);
  } else {
    chosen.history.insert(chosen.history.end(), inputs.begin(), inputs.end());
  }
  chosen.next_input = tokens.back();
  chosen.position = end;
}

void Session::step(std::span<std::int32_t> tokens, std::span<const std::int64_t> streams) {
  if (tokens.size() != streams.size())
    fail("step", "expected as many tokens as streams, got {} and {}", tokens.size(), streams.size());
  impl_->check_step(streams);

  const FlushSubnormals flush;
  const std::int64_t count = static_cast<std::int64_t>(streams.size());
  const std::int64_t block = impl_->block_of(count);
  const std::int64_t blocks = (count + block - 1) / block;
  while (static_cast<std::int64_t>(impl_->workers.size()) < std::max<std::int64_t>(blocks, 1))
    impl_->workers.emplace_back(impl_->network());
  if (!impl_->options.cache) return impl_->step_without_cache(tokens, streams);
  // A single block gets the whole context, whose threads share its products.
  parallel_for(impl_->context, blocks, [&](Context& own, std::int64_t i) {
    const std::int64_t first = i * block, here = std::min(block, count - first);
    impl_->step_block(own, tokens.subspan(first, here), streams.subspan(first, here), impl_->workers[i]);
  });
}

void Session::step(std::span<std::int32_t> tokens) { step(tokens, impl_->all); }

void Session::fork(std::int64_t stream, std::int64_t source, std::uint64_t seed) {
  Impl::Stream& target = impl_->stream(stream);
  target = impl_->stream(source);
  target.sampling.seed = seed;
  if (impl_->options.cache && stream != source) impl_->state.copy(stream, impl_->state, source);
}

std::vector<std::byte> Session::save(std::int64_t stream) const {
  const Impl::Stream& chosen = impl_->stream(stream);
  Snapshot snapshot;
  snapshot.cache = impl_->options.cache;
  snapshot.model = impl_->fingerprint();
  snapshot.position = chosen.position;
  snapshot.next_input = chosen.next_input;
  snapshot.sampling = chosen.sampling;
  if (snapshot.cache) {
    snapshot.past = impl_->state.save(stream);
  } else {
    const auto history = std::as_bytes(std::span(chosen.history));
    snapshot.past.assign(history.begin(), history.end());
  }
  return snapshot.bytes();
}

void Session::restore(std::int64_t stream, std::span<const std::byte> bytes) {
  Impl::Stream& chosen = impl_->stream(stream);
  const Snapshot snapshot = Snapshot::read(bytes);
  if (snapshot.model != impl_->fingerprint())
    fail("restore", "expected a snapshot of this model, {:016x}, got one of {:016x}", impl_->fingerprint(),
         snapshot.model);
  if (snapshot.cache != impl_->options.cache)
    fail("restore", "expected a snapshot {} a cache, as this session has it, got one {}",
         impl_->options.cache ? "with" : "without", snapshot.cache ? "with" : "without");
  snapshot.sampling.check();
  if (snapshot.next_input >= impl_->model->config().input_tokens())
    fail("restore", "expected an input below {}, got {}", impl_->model->config().input_tokens(),
         snapshot.next_input);
  std::vector<std::int32_t> history(snapshot.cache ? 0 : snapshot.past.size() / sizeof(std::int32_t));
  if (snapshot.cache) {
    impl_->state.restore(stream, snapshot.past, snapshot.position);
  } else {
    if (snapshot.past.size() != sizeof(std::int32_t) * static_cast<std::size_t>(snapshot.position))
      fail("restore", "expected {} inputs, got {} bytes", snapshot.position, snapshot.past.size());
    std::memcpy(history.data(), snapshot.past.data(), snapshot.past.size());
  }
  chosen.history = std::move(history);
  chosen.position = snapshot.position;
  chosen.next_input = snapshot.next_input;
  chosen.sampling = snapshot.sampling;
}

std::int64_t Session::streams() const { return static_cast<std::int64_t>(impl_->streams.size()); }

std::int64_t Session::position(std::int64_t stream) const { return impl_->stream(stream).position; }

std::size_t Session::state_bytes(std::int64_t stream) const {
  const Impl::Stream& chosen = impl_->stream(stream);
  return impl_->options.cache ? impl_->state.bytes(stream) : chosen.history.size() * sizeof(std::int32_t);
}

}  // namespace linnet
