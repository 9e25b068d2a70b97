#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/context_impl.h"
#include "base/fail.h"
#include "base/float_mode.h"
#include "base/random.h"
#include "base/workspace.h"
#include "generation/snapshot.h"
#include "generation/streams.h"
#include "linnet/generation.h"
#include "model/access.h"
#include "model/config.h"
#include "model/transformer.h"

namespace linnet {
namespace {

void check_model(const ModelConfig& config, std::int64_t streams) {
  check_streams("number session", streams);
  if (!config.field_sizes().empty() || config.target_count() == 0)
    fail<UsageError>("number session", "expected a model whose steps are real numbers alone, got one of {}",
                     config.classifies() ? "labels" : "tokens");
  if (!config.causal())
    fail<UsageError>("number session",
                     "expected a model whose steps do not see later ones, got one with model.bidirectional");
}

}  // namespace

struct NumberSession::Impl {
  struct Stream {
    std::int32_t first_input = 0;  ///< of a next-token model
    bool shifted = false;          ///< whether a start token comes before the first numbers
    std::int64_t position = 0;     ///< numbers taken
    bool predicted = false;        ///< whether its row of `parameters` holds a prediction
    bool broken = false;           ///< a step failed between two layers of its state

    std::int64_t steps() const { return position > 0 && shifted ? position + 1 : position; }
  };

  Impl(std::shared_ptr<const Model> given, std::int64_t count, const Options& options)
      : model(std::move(given)),
        options(options),
        context(options.threads),
        recurrent(network()),
        state(network(), count, options.capacity),
        side(network(), 1, options.capacity),
        parameters(Tensor::of<float>({count, network().value_head()->outputs()})),
        inputs(Tensor::of<float>({count, config().columns})),
        last(Tensor::of<float>({count, last_size()})),
        streams("number session", count) {
    begin_all();
    // With one learned position, that of the start token, there are no steps.
    if (limit() > 0) try_steps();
  }

  /// Takes the memory of the states of families that grow, and of every thread for a step of a whole block.
  void try_steps() {
    const std::int64_t count = streams.size();
    std::vector<float> nothing(static_cast<std::size_t>(count * config().columns));
    std::vector<float> out(static_cast<std::size_t>(count * config().target_count()));
    take(nothing, out, streams.all(), true);
    const LargestBlocks largest(count, context.threads(), config().weights);
    const auto block = streams.all().first(static_cast<std::size_t>(largest.streams));
    const auto try_step = [&](Context& own) {
      const FlushSubnormals flush;
      begin_all();
      take_block(own, std::span(nothing).first(block.size() * static_cast<std::size_t>(config().columns)),
                 out, block, true);
    };
    try_step(context);
    for (Context& own : context.impl().contexts_of_threads()) try_step(own);
    begin_all();
  }

  void begin_all() {
    for (std::int64_t i = 0; i < streams.size(); ++i) begin(i, config().classes > 0 ? 0 : -1);
  }

  const Network& network() const { return network_of(*model); }
  const ModelConfig& config() const { return model->config(); }

  /// Numbers of a stream that its next inputs are counted from.
  std::int64_t last_size() const {
    return config().relative_inputs ? network().columns()->shape().series() : 0;
  }

  std::span<float> last_of(std::int64_t index) {
    return last.span<float>().subspan(static_cast<std::size_t>(index * last_size()),
                                      static_cast<std::size_t>(last_size()));
  }

  std::int64_t limit() const { return network().embedding().limit() - (config().shifted() ? 1 : 0); }

  void begin(std::int64_t index, std::int64_t label) {
    Stream& chosen = streams.at(index);
    const std::int32_t first = config().first_input(label);
    chosen = {.first_input = config().shifted() ? first : 0, .shifted = config().shifted()};
    std::ranges::fill(last_of(index), std::numeric_limits<float>::quiet_NaN());
    state.reset(index);
  }

  void check(const char* operation, std::span<const float> in, std::span<const std::int64_t> chosen) {
    const auto count = std::ssize(chosen);
    if (std::ssize(in) != count * config().columns)
      fail<UsageError>(operation, "expected {} · {} numbers, got {}", count, config().columns, in.size());
    streams.check_once(operation, chosen);
    for (std::size_t i = 0; i < in.size(); ++i)
      if (std::isinf(in[i]))
        fail<UsageError>(operation, "expected finite numbers, got {} in stream {}", in[i],
                         chosen[i / static_cast<std::size_t>(config().columns)]);
    for (const std::int64_t index : chosen)
      check_limit(operation, index, streams.at(index).position, limit());
    for (const std::int64_t index : chosen) state.reserve(index, streams.at(index).position + 2);
  }

  /// The states of the streams take their rows of `in` [n, columns], or the start token where it is empty;
  /// hidden [n, width].
  void advance(Context& own, View<float> hidden, std::span<const std::int64_t> chosen,
               std::span<const float> in) {
    const std::int64_t count = std::ssize(chosen), columns = config().columns;
    const bool start = in.empty();
    Workspace workspace(own);
    const std::span<std::int32_t> ids = workspace.array<std::int32_t>(config().shifted() ? count : 0);
    const View<float> z = workspace.take(count, columns);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = start ? streams.at(chosen[i]).first_input : -1;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t index = chosen[static_cast<std::size_t>(i)];
      const std::span<const float> before = last_of(index);
      if (start)
        std::fill_n(z.at(i), columns, 0.0f);
      else
        network().columns()->normalise(z.slice(0, i, i + 1),
                                       View<const float>(in.data() + i * columns, {1, columns}),
                                       View<const float>(before.data(), {std::ssize(before)}));
    }
    recurrent.hidden(own, hidden, {ids, z}, chosen, state);
  }

  /// What a snapshot of a stream holds behind its state: the last numbers, and with a prediction that and the
  /// step before it.
  std::vector<std::span<std::byte>> kept(std::int64_t index, bool prediction) {
    const auto bytes_of = [](View<float> row) {
      return std::as_writable_bytes(std::span(row.data(), static_cast<std::size_t>(row.size())));
    };
    std::vector<std::span<std::byte>> rows = {std::as_writable_bytes(last_of(index))};
    if (prediction)
      rows.insert(rows.end(), {bytes_of(row_of_parameters(index)),
                               bytes_of(inputs.view<float>().slice(0, index, index + 1))});
    return rows;
  }

  View<const float> row_of_inputs(std::int64_t index) const {
    return inputs.view<float>().slice(0, index, index + 1);
  }
  View<float> row_of_parameters(std::int64_t index) {
    return parameters.view<float>().slice(0, index, index + 1);
  }

  /// A block of streams takes its numbers.
  void take_block(Context& own, std::span<const float> in, std::span<float> out,
                  std::span<const std::int64_t> chosen, bool predict) {
    const std::int64_t count = std::ssize(chosen), columns = config().columns,
                       targets = config().target_count();
    Workspace workspace(own);
    const View<float> hidden = workspace.take(count, config().width);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t index = chosen[static_cast<std::size_t>(i)];
      if (config().shifted() && streams.at(index).position == 0)
        advance(own, hidden.slice(0, i, i + 1), chosen.subspan(static_cast<std::size_t>(i), 1), {});
    }
    advance(own, hidden, chosen, in);
    const ValueHead& head = *network().value_head();
    const View<float> numbers = workspace.take(count, head.outputs());
    if (predict) head.forward(own, numbers, hidden);
    std::int64_t lost = -1;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t index = chosen[static_cast<std::size_t>(i)];
      Stream& one = streams.at(index);
      if (predict && !all_finite(numbers.slice(0, i, i + 1))) {
        if (lost < 0) lost = index;
        std::fill_n(out.data() + i * targets, targets, std::numeric_limits<float>::quiet_NaN());
        continue;
      }
      ++one.position;
      one.predicted = predict;
      std::copy_n(in.begin() + i * columns, columns, inputs.view<float>().at(index));
      const View<const float> taken = row_of_inputs(index);
      std::copy_n(network().columns()->last_numbers(taken, 0).data(), last_size(), last_of(index).begin());
      if (!predict) continue;
      std::copy_n(numbers.at(i), head.outputs(), row_of_parameters(index).data());
      const View<float> means(out.data() + i * targets, {1, targets});
      std::copy_n(numbers.at(i), targets, means.data());
      network().columns()->restore(means, means, taken);
    }
    if (lost >= 0) fail_not_finite("step", lost);
  }

  void take(std::span<const float> in, std::span<float> out, std::span<const std::int64_t> chosen,
            bool predict) {
    const FlushSubnormals flush;
    const auto columns = static_cast<std::size_t>(config().columns),
               targets = static_cast<std::size_t>(config().target_count());
    const std::int64_t block = block_of(std::ssize(chosen), context.threads(), config().weights);
    streams.in_blocks(context, state, chosen, block,
                      [&](Context& own, std::size_t first, std::size_t count, std::int64_t) {
                        take_block(own, in.subspan(first * columns, count * columns),
                                   predict ? out.subspan(first * targets, count * targets) : out,
                                   chosen.subspan(first, count), predict);
                      });
  }

  /// The parameters of the stream's last prediction; those of a first step are computed here.
  View<const float> prediction(const char* operation, std::int64_t index) {
    Stream& one = streams.whole(operation, index);
    if (one.predicted) return row_of_parameters(index);
    if (one.position > 0 || !config().shifted())
      fail(operation, "expected a step of stream {} before, which has predicted nothing yet", index);
    const FlushSubnormals flush;
    Workspace workspace(context);
    const View<float> hidden = workspace.take(1, config().width);
    const std::int64_t slot = 0;
    side.reset(slot);
    const std::int32_t id = one.first_input;
    const View<float> z = workspace.take(1, config().columns);
    std::fill_n(z.data(), z.size(), 0.0f);
    recurrent.hidden(context, hidden, {std::span(&id, 1), z}, std::span(&slot, 1), side);
    network().value_head()->forward(context, row_of_parameters(index), hidden);
    std::fill_n(inputs.view<float>().at(index), config().columns, std::nanf(""));
    return row_of_parameters(index);
  }

  /// Makes `stream` continue as `source` of another session of the model, or of this one.
  void continue_as(std::int64_t stream, Impl& other, std::int64_t source) {
    state.copy(stream, other.state, source);
    streams.at(stream) = other.streams.at(source);
    std::copy_n(other.row_of_inputs(source).data(), config().columns, inputs.view<float>().at(stream));
    std::ranges::copy(other.last_of(source), last_of(stream).begin());
    std::copy_n(other.row_of_parameters(source).data(), parameters.view<float>().extent(1),
                row_of_parameters(stream).data());
  }

  std::shared_ptr<const Model> model;
  Options options;
  Context context;
  RecurrentTransformer recurrent;
  RecurrentState state, side;
  Tensor parameters;  ///< of the streams' last predictions, [streams, outputs]
  Tensor inputs;      ///< their last steps, [streams, columns]
  Tensor last;        ///< the last numbers that they have taken, [streams, last_size]
  Streams<Stream> streams;
  ModelSnapshots snapshots{*model};
};

NumberSession::NumberSession(std::shared_ptr<const Model> model, std::int64_t streams,
                             const Options& options) {
  check_given("number session", model);
  check_model(model->config(), streams);
  if (options.capacity < 0)
    fail<UsageError>("number session", "expected a capacity of at least 0 steps, got {}", options.capacity);
  impl_ = std::make_unique<Impl>(std::move(model), streams, options);
}

NumberSession::~NumberSession() = default;
NumberSession::NumberSession(NumberSession&&) noexcept = default;
NumberSession& NumberSession::operator=(NumberSession&&) noexcept = default;

void NumberSession::begin(std::int64_t stream, std::int64_t label) { impl_->begin(stream, label); }

void NumberSession::step(std::span<const float> in, std::span<float> out,
                         std::span<const std::int64_t> streams) {
  if (out.size() != streams.size() * static_cast<std::size_t>(impl_->config().target_count()))
    fail<UsageError>("step", "expected memory for {} · {} numbers, got {}", streams.size(),
                     impl_->config().target_count(), out.size());
  impl_->check("step", in, streams);
  impl_->take(in, out, streams, true);
}

void NumberSession::step(std::span<const float> in, std::span<float> out) {
  step(in, out, impl_->streams.all());
}

void NumberSession::observe(std::span<const float> in, std::span<const std::int64_t> streams) {
  impl_->check("observe", in, streams);
  impl_->take(in, {}, streams, false);
}

void NumberSession::observe(std::span<const float> in) { observe(in, impl_->streams.all()); }

void NumberSession::densities(std::int64_t stream, std::span<float> mean, std::span<float> scale,
                              std::span<float> freedom) {
  const std::int64_t targets = impl_->config().target_count();
  for (const std::span<float> memory : {mean, scale, freedom})
    if (std::ssize(memory) != targets)
      fail<UsageError>("densities", "expected memory for {} numbers, got {}", targets, memory.size());
  const View<const float> parameters = impl_->prediction("densities", stream);
  const auto row = [&](std::span<float> memory) { return View<float>(memory.data(), {1, targets}); };
  impl_->network().value_head()->densities(*impl_->network().columns(), row(mean), row(scale), row(freedom),
                                           parameters, impl_->row_of_inputs(stream));
}

void NumberSession::draw(std::int64_t stream, std::uint64_t seed, std::span<float> out, double temperature) {
  const std::int64_t targets = impl_->config().target_count();
  if (std::ssize(out) != targets)
    fail<UsageError>("draw", "expected memory for {} numbers, got {}", targets, out.size());
  check_temperature("draw", temperature);
  if (temperature > 0 && impl_->config().value_head == ValueDistribution::squared_error)
    fail<UsageError>("draw",
                     "expected a model of densities (model.value_head = \"gaussian\" or \"student-t\"), got "
                     "\"{}\", which predicts means alone: temperature 0 gives them",
                     name_of(impl_->config().value_head));
  const View<const float> parameters = impl_->prediction("draw", stream);
  Workspace workspace(impl_->context);
  const std::span<float> uniform = workspace.array<float>(2 * targets);
  const Random random(seed, Draw::sampling, 1);
  const auto position = static_cast<std::uint64_t>(impl_->streams.at(stream).position);
  for (std::size_t i = 0; i < uniform.size(); ++i) uniform[i] = random.uniform(position * uniform.size() + i);
  impl_->network().value_head()->sample(out, parameters, uniform, static_cast<float>(temperature));
  const View<float> row(out.data(), {1, targets});
  impl_->network().columns()->restore(row, row, impl_->row_of_inputs(stream));
}

void NumberSession::fork(std::int64_t stream, std::int64_t source) {
  impl_->streams.at(stream);
  impl_->streams.whole("fork", source);
  if (stream != source) impl_->continue_as(stream, *impl_, source);
}

void NumberSession::resize(std::int64_t streams) {
  check_streams("number session", streams);
  const std::int64_t before = impl_->streams.size();
  if (streams == before) return;
  auto resized = std::make_unique<Impl>(impl_->model, streams, impl_->options);
  for (std::int64_t i = 0; i < std::min(before, streams); ++i) resized->continue_as(i, *impl_, i);
  impl_ = std::move(resized);
}

std::vector<std::byte> NumberSession::save(std::int64_t stream) const {
  const Impl::Stream& chosen = impl_->streams.whole("save", stream);
  Snapshot snapshot;
  snapshot.prediction = chosen.predicted;
  snapshot.model = impl_->snapshots.fingerprint();
  snapshot.position = chosen.steps();
  snapshot.next_input = chosen.first_input;
  snapshot.past = impl_->state.save(stream);
  for (const std::span<std::byte> row : impl_->kept(stream, chosen.predicted))
    snapshot.past.insert(snapshot.past.end(), row.begin(), row.end());
  return snapshot.bytes();
}

void NumberSession::restore(std::int64_t stream, std::span<const std::byte> bytes) {
  Impl::Stream& chosen = impl_->streams.at(stream);
  const Snapshot snapshot = impl_->snapshots.read(bytes);
  const bool shifted = impl_->config().shifted();
  if (!snapshot.cache || (shifted && snapshot.position == 1) ||
      snapshot.next_input >= std::max<std::int64_t>(impl_->config().input_tokens(), 1))
    fail("restore", "expected a snapshot of a stream of numbers, got another");
  const auto kept = impl_->kept(stream, snapshot.prediction);
  std::size_t behind = 0;
  for (const std::span<std::byte> row : kept) behind += row.size();
  const std::span<const std::byte> past = snapshot.past;
  if (past.size() < behind)
    fail("restore", "expected a snapshot with the last {} numbers of its stream, got {} bytes",
         behind / sizeof(float), past.size());
  const std::size_t states = past.size() - behind;
  impl_->side.restore(0, past.first(states), snapshot.position);
  impl_->state.copy(stream, impl_->side, 0);
  std::span<const std::byte> rest = past.subspan(states);
  for (const std::span<std::byte> row : kept) {
    std::ranges::copy(rest.first(row.size()), row.begin());
    rest = rest.subspan(row.size());
  }
  chosen = {.first_input = snapshot.next_input,
            .shifted = shifted,
            .position = shifted && snapshot.position > 0 ? snapshot.position - 1 : snapshot.position,
            .predicted = snapshot.prediction};
}

std::int64_t NumberSession::streams() const { return impl_->streams.size(); }

std::int64_t NumberSession::targets() const { return impl_->config().target_count(); }

std::int64_t NumberSession::position(std::int64_t stream) const { return impl_->streams.at(stream).position; }

std::int64_t NumberSession::limit() const { return impl_->limit(); }

bool NumberSession::can_continue(std::int64_t stream) const {
  const Impl::Stream& chosen = impl_->streams.at(stream);
  return !chosen.broken && chosen.position < limit();
}

std::size_t NumberSession::state_bytes(std::int64_t stream) const {
  impl_->streams.at(stream);
  return impl_->state.bytes(stream) + impl_->last_of(stream).size_bytes();
}

}  // namespace linnet
