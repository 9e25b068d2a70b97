#include <malloc.h>

#include <algorithm>
#include <numeric>

#include "attention/cost.h"
#include "attention/family.h"
#include "attention/feature_maps/random_draws.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/random.h"
#include "bench/attention.h"
#include "bench/bench.h"
#include "linnet/attention.h"
#include "report.h"

namespace linnet {
namespace {

constexpr std::int64_t streams_of_block = 16;

Tensor random_tensor(Context& context, DType type, const Shape& shape, std::uint32_t stream) {
  Tensor tensor(type, shape);
  const Random random(1, Draw::test, stream);
  // Sums of uniform numbers: normal enough to measure with, and fast for a million tokens.
  parallel_blocks(context, tensor.size(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      double sum = 0;
      for (const std::uint32_t word : random.block(static_cast<std::uint64_t>(i)))
        sum += word * 0x1p-32 - 0.5;
      const float value = static_cast<float>(sum * 1.732);
      if (type == DType::bf16)
        tensor.span<bf16>()[static_cast<std::size_t>(i)] = to_bf16(value);
      else
        tensor.span<float>()[static_cast<std::size_t>(i)] = value;
    }
  });
  return tensor;
}

CostSizes sizes_of(const AttentionRow& row) {
  return {row.length, row.head_dim, row.value_dim, row.family_options.rank};
}

/// Pairs of a query and a key that the family multiplies, of one sequence.
double pairs_of(const AttentionRow& row) {
  if (row.mask == "boolean") return visible_pairs(row.mask, row.mask_sizes, row.length);
  return multiplied_pairs(attention_of(row), bench_mask(row.mask, row.mask_sizes, row.length), row.length);
}

double least_flops(const AttentionRow& row) {
  const AttentionOptions options = attention_of(row);
  AttentionCost cost = least_cost(options, sizes_of(row), pairs_of(row));
  if (options.family == Family::linear) {
    // Where queries see few keys, multiplying features pair by pair takes less than the sums of values do.
    const std::int64_t features = options.linear.feature_map->features(row.head_dim);
    const double pairs =
        row.mask == "boolean"
            ? pairs_of(row)
            : all_pairs(options, bench_mask(row.mask, row.mask_sizes, row.length), row.length);
    const AttentionCost paired = cost_of_pairs(options, {row.length, features, row.value_dim}, pairs),
                        of_map = least_cost(options, {row.length, row.head_dim, 0}, 0);
    cost = {std::min(cost.forward, of_map.forward + paired.forward),
            std::min(cost.training, of_map.training + paired.training)};
  }
  return static_cast<double>(row.batch * row.heads) * (row.pass == "training" ? cost.training : cost.forward);
}

/// Bytes of linformer's E and F.
double projection_bytes(const AttentionRow& row) {
  if (row.family != "linformer") return 0;
  return 2.0 * sizeof(float) * static_cast<double>(row.heads) * static_cast<double>(row.family_options.rank) *
         static_cast<double>(row.length);
}

/// Every input and output once: q, k, v, out; in training also their gradients, and the inputs and out a
/// second time. The keys of lsh are its queries.
double least_bytes(const AttentionRow& row) {
  const double rows =
      static_cast<double>(row.batch * row.length * row.heads * static_cast<std::int64_t>(size_of(row.dtype)));
  const double e = static_cast<double>(row.head_dim), m = static_cast<double>(row.value_dim);
  const double inputs = rows * ((row.family == "lsh" ? 1 : 2) * e + m) + projection_bytes(row);
  return row.pass == "training" ? 3 * inputs + 3 * rows * m : inputs + rows * m;
}

Tensor decay_of(const AttentionRow& row) {
  if (row.decay == 0) return {};
  Tensor decay = Tensor::of<float>({row.heads});
  std::ranges::fill(decay.span<float>(), static_cast<float>(row.decay));
  return decay;
}

/// Inputs and room for the results of one row of the parallel form.
class ParallelWork {
 public:
  ParallelWork(Context& context, const AttentionRow& row)
      : attention_(make_attention(attention_of(row))),
        training_(row.pass == "training"),
        mask_(bench_mask(row.mask, row.mask_sizes, row.length)),
        decay_(decay_of(row)) {
    const Shape keys = {row.batch, row.length, row.heads, row.head_dim};
    const Shape values = {row.batch, row.length, row.heads, row.value_dim};
    q_ = random_tensor(context, row.dtype, keys, 0);
    if (row.family != "lsh") k_ = random_tensor(context, row.dtype, keys, 1);
    v_ = random_tensor(context, row.dtype, values, 2);
    out_ = Tensor(row.dtype, values);
    if (row.family == "linformer")
      projections_ = draw_projections(context, "bench", row.family_options, row.heads, row.length);
    if (!training_) return;
    grad_out_ = random_tensor(context, row.dtype, values, 3);
    normaliser_ = Tensor::of<float>({row.batch, row.length, row.heads});
    dq_ = Tensor(row.dtype, keys);
    dk_ = Tensor(row.dtype, keys);
    dv_ = Tensor(row.dtype, values);
    if (row.family == "linformer")
      grad_projections_ = {Tensor::of<float>(projections_.key.shape()),
                           Tensor::of<float>(projections_.value.shape())};
    if (row.decay != 0) grad_decay_ = Tensor::of<float>({row.heads});
  }

  void run(Context& context) {
    const Tensor& key = k_.size() == 0 ? q_ : k_;
    AttentionInputs inputs{std::as_const(q_).float_view(), key.float_view(), std::as_const(v_).float_view(),
                           mask_};
    const bool projected = projections_.key.size() != 0;
    if (projected) {
      inputs.key_projection = std::as_const(projections_.key).view<float>();
      inputs.value_projection = std::as_const(projections_.value).view<float>();
    }
    if (decay_.size() != 0) inputs.decay = decay_.view<float>();
    AttentionOutputs outputs{out_.float_view()};
    if (training_) outputs.normaliser = normaliser_.view<float>();
    attention_->forward(context, outputs, inputs);
    if (!training_) return;
    AttentionGradients gradients{dq_.float_view(), dk_.float_view(), dv_.float_view()};
    if (decay_.size() != 0) gradients.decay = grad_decay_.view<float>();
    if (projected) {
      gradients.key_projection = grad_projections_.key.view<float>();
      gradients.value_projection = grad_projections_.value.view<float>();
    }
    attention_->backward(context, gradients, std::as_const(grad_out_).float_view(), inputs,
                         std::as_const(out_).float_view(), std::as_const(normaliser_).view<float>());
  }

 private:
  std::unique_ptr<Attention> attention_;
  bool training_;
  Mask mask_;
  Tensor decay_, q_, k_, v_, grad_out_, out_, normaliser_, dq_, dk_, dv_, grad_decay_;
  Projections projections_, grad_projections_;
};

/// One token for each of many streams, which the threads share in blocks.
class StepWork {
 public:
  StepWork(Context& context, const AttentionRow& row)
      : attention_(make_attention(attention_of(row))),
        decay_(decay_of(row)),
        q_(random_tensor(context, DType::f32, {row.streams, row.heads, row.head_dim}, 0)),
        k_(random_tensor(context, DType::f32, {row.streams, row.heads, row.head_dim}, 1)),
        v_(random_tensor(context, DType::f32, {row.streams, row.heads, row.value_dim}, 2)),
        out_(Tensor::of<float>({row.streams, row.heads, row.value_dim})),
        slots_(static_cast<std::size_t>(row.streams)),
        state_(attention_->make_state(row.streams, {row.heads, row.head_dim, row.value_dim})) {
    std::iota(slots_.begin(), slots_.end(), 0);
  }

  void run(Context& context) {
    const View<const float> decay =
        decay_.size() == 0 ? View<const float>() : std::as_const(decay_).view<float>();
    parallel_blocks(
        context, out_.shape()[0], streams_of_block, [&](Context& own, std::int64_t begin, std::int64_t end) {
          const auto part = [&](const Tensor& tensor) { return tensor.view<float>().slice(0, begin, end); };
          attention_->step(own, out_.view<float>().slice(0, begin, end), part(q_), part(k_), part(v_),
                           *state_,
                           std::span(slots_).subspan(static_cast<std::size_t>(begin),
                                                     static_cast<std::size_t>(end - begin)),
                           decay);
        });
  }

  std::size_t state_bytes() const { return state_->bytes(0); }

 private:
  std::unique_ptr<Attention> attention_;
  Tensor decay_, q_, k_, v_, out_;
  std::vector<std::int64_t> slots_;
  std::unique_ptr<State> state_;
};

struct Measured {
  std::vector<double> times;
  std::size_t peak = 0, working = 0;
};

/// Times calls with a context of their own of so many threads, and what memory they take beyond what is held
/// before the first.
Measured measure_calls(int threads, const std::function<void(Context& context)>& call, double seconds) {
  Measured result;
  malloc_trim(0);  // freed memory that the process keeps would serve unseen
  const std::size_t before = resident_memory();
  reset_peak_memory();
  Context context(threads);
  result.times = time_calls([&] { call(context); }, seconds);
  result.peak = peak_memory();
  result.working = result.peak - std::min(result.peak, before);
  return result;
}

Json row_json(Context& context, const AttentionRow& row, const Measured& measured, double flops,
              double floor_ms) {
  Json json = bench_row(context, "attention");
  json["time_ms"] = time_summary(measured.times);
  const double median = json["time_ms"]["median"];
  json["dtype"] = name_of(row.dtype);
  json["peak_memory_bytes"] = measured.peak;
  json["working_memory_bytes"] = measured.working;
  json["tensor_bytes"] = tensor_bytes(row);
  json["family"] = row.family;
  json["feature_map"] = row.family == "linear" ? Json(row.feature_map) : Json(nullptr);
  const bool linear = row.family == "linear";
  json["features"] =
      linear ? Json(attention_of(row).linear.feature_map->features(row.head_dim)) : Json(nullptr);
  const bool random = linear && is_random_feature_map(row.feature_map);
  json["directions"] =
      random ? Json(name_of(directions_drawn(find_directions(row.family_options.directions), row.head_dim)))
             : Json(nullptr);
  const FamilyInfo& info = info_of(find_family(row.family));
  json["cost"] = row.pass == "training" ? info.training : info.cost;
  json["mask"] = row.mask;
  json["decay"] = row.decay == 0 ? Json(nullptr) : Json(row.decay);
  json["pass"] = row.pass;
  json["batch"] = row.batch;
  json["length"] = row.length;
  json["heads"] = row.heads;
  json["head_dim"] = row.head_dim;
  json["value_dim"] = row.value_dim;
  json["tokens_per_second"] =
      1e3 * static_cast<double>(row.is_step() ? row.streams : row.batch * row.length) / median;
  json["gflops"] = flops / (1e6 * median);
  json["floor_ms"] = floor_ms;
  json["times_floor"] = median / floor_ms;
  json["fraction"] = floor_ms / median;
  return json;
}

Json measure_step(Context& context, const AttentionRow& row, double seconds) {
  StepWork work(context, row);
  const Measured measured = measure_calls(
      context.threads(), [&](Context& own) { work.run(own); }, seconds);
  const double streams = static_cast<double>(row.streams),
               state_bytes = static_cast<double>(work.state_bytes());
  const double flops =
      streams * static_cast<double>(row.heads) * least_cost(attention_of(row), sizes_of(row), 0).forward;
  Json json =
      row_json(context, row, measured, flops, 2 * state_bytes * streams / (1e6 * ceiling(context).copy_gbs));
  json["streams"] = row.streams;
  json["state_bytes_per_stream"] = work.state_bytes();
  json["tensor_bytes"] = json["tensor_bytes"].get<double>() + state_bytes * streams;
  return json;
}

}  // namespace

AttentionOptions attention_of(const AttentionRow& row) {
  const bool user = row.feature_map == "user";
  AttentionOptions options = row.family_options.of(row.family, user ? "elu" : row.feature_map, row.head_dim);
  if (user) options.linear.feature_map = user_map();
  return options;
}

std::string refusal_of(const AttentionRow& row) {
  if (row.is_step()) return {};
  AttentionRow one = row;
  one.batch = one.heads = one.length = one.family_options.rank = 1;
  if (row.family_options.stride == 0) one.family_options.stride = default_stride(row.length);
  try {
    if (row.family == "linformer" && row.family_options.rank > row.length)
      fail<UsageError>("bench", "expected --rank of at most --length {} for linformer, got {}", row.length,
                       row.family_options.rank);
    Context own(1);
    ParallelWork(own, one).run(own);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

double time_units(const AttentionRow& row) {
  const Family family = find_family(row.family);
  const bool linear = family == Family::linear || family == Family::linformer || family == Family::lsh;
  return linear && row.mask != "boolean" ? static_cast<double>(row.length) : pairs_of(row);
}

double tensor_bytes(const AttentionRow& row) {
  const double tokens = row.is_step() ? static_cast<double>(row.streams)
                                      : static_cast<double>(row.batch) * static_cast<double>(row.length);
  const double rows = tokens * static_cast<double>(row.heads);
  const std::int64_t keys = row.family == "lsh" ? 0 : row.head_dim;
  const double inputs_and_out = rows * static_cast<double>(row.head_dim + keys + 2 * row.value_dim) *
                                    static_cast<double>(size_of(row.dtype)) +
                                projection_bytes(row);
  if (row.pass != "training") return inputs_and_out;
  // The gradients of lsh's queries and keys are two.
  const double key_gradients =
      row.family == "lsh" ? rows * static_cast<double>(row.head_dim) * static_cast<double>(size_of(row.dtype))
                          : 0;
  return 2 * inputs_and_out + key_gradients + rows * sizeof(float);
}

Json measure_attention(Context& context, const AttentionRow& row, double seconds) {
  if (row.is_step()) return measure_step(context, row, seconds);
  {
    // Code is memory too, where it is used for the first time: a short sequence sees to that.
    AttentionRow small = row;
    small.batch = 1;
    small.length = std::min<std::int64_t>(row.length, 256);
    small.family_options.rank = std::min(row.family_options.rank, small.length);
    Context own(context.threads());
    ParallelWork(own, small).run(own);
  }
  ParallelWork work(context, row);
  const Measured measured = measure_calls(
      context.threads(), [&](Context& own) { work.run(own); }, seconds);
  const Ceiling limits = ceiling(context);
  const double flops = least_flops(row);
  const double floor_ms =
      1e3 * std::max(flops / (1e9 * limits.gemm_gflops), least_bytes(row) / (1e9 * limits.copy_gbs));
  return row_json(context, row, measured, flops, floor_ms);
}

}  // namespace linnet
