// What the two sweeps of the backward pass share. Include it inside a file that is compiled by
// hwy/foreach_target.h.

#if defined(LINNET_ATTENTION_LINEAR_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_LINEAR_BACKWARD_INL_H_
#undef LINNET_ATTENTION_LINEAR_BACKWARD_INL_H_
#else
#define LINNET_ATTENTION_LINEAR_BACKWARD_INL_H_
#endif

#include "attention/linear/sweep-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// The backward pass of a group of heads. With the normaliser as one more column of values, V⁺ = [V, 1], and
/// G⁺ = [g/d, −(g·o)/d], the gradients are
///   dφQ_i = S⁺_i G⁺_i,  dφK_j = R⁺_j V⁺_j,  dV_j = R_jᵀ φK_j,
///   S⁺_i = Σ_j φK_j V⁺_jᵀ over the keys that i sees,  R⁺_j = Σ_i φQ_i G⁺_iᵀ over the queries that see j
/// (Katharopoulos et al. 2020, equations 13 to 15, with the normaliser's part): products of the forward
/// pass's kind. Neither S⁺ nor R⁺ is stored along the sequence: queries and keys have a sweep each.
template <class Task>
class BackwardSweep : public Sweep<Task> {
 protected:
  using Sweep<Task>::kAll;

  BackwardSweep(Context& own, const LinearGradientCall& call, SweepSide side, const LinearBlock& block)
      : Sweep<Task>(own, call.forward, side, block),
        gradient_call_(call),
        features_(static_cast<std::size_t>(call.forward.features)),
        columns_(static_cast<std::size_t>(call.forward.sizes.value_dim)),
        head_dim_(static_cast<std::size_t>(call.forward.sizes.head_dim)),
        width_(round_up(features_, kPad)),
        value_width_(round_up(columns_, kPad)),
        ldf_(tile_stride(features_)),
        ldm_(tile_stride(columns_)),
        ldv_(tile_stride(columns_ + 1)),
        lde_(round_up(head_dim_, kPad)) {
    const AttentionInputs& inputs = call.forward.inputs;
    const std::int64_t b = block.batch;
    for (std::int64_t h = block.first_head; h < block.last_head; ++h)
      rows_.push_back({rows_of(inputs.query, b, h), rows_of(inputs.key, b, h), rows_of(inputs.value, b, h),
                       rows_of(call.grad_out, b, h), rows_of(call.out, b, h)});
  }

  void take_tiles(Workspace& workspace) {
    const std::size_t chunk = this->chunk_;
    q_ = workspace.take_zeroed(chunk * ldf_);
    k_ = workspace.take_zeroed(chunk * ldf_);
    v_ = workspace.take_zeroed(chunk * ldv_);
    g_ = workspace.take_zeroed(chunk * ldv_);
    faded_ = workspace.take_zeroed(chunk * std::max(ldf_, ldv_));
    transposed_ = workspace.take_zeroed(chunk * std::max({ldf_, ldv_, lde_}));
    result_ = workspace.take_zeroed(chunk * ldf_);
    weights_ = workspace.take_zeroed(chunk * chunk);
    wide_ = workspace.take_zeroed(wide_floats());
    power_ = workspace.take_zeroed(chunk);
  }
  std::size_t wide_floats() const { return std::max(this->chunk_ * lde_, ldv_); }

  /// φK and V⁺, zeros up to `rows`.
  HWY_NOINLINE void load_keys(Mask::Interval range, std::size_t rows) {
    load_features(this->own_, this->call_, false, this->head(), of_head().key, range, k_, ldf_, rows, wide_,
                  this->scales_.key.data());
    this->scales_.end_keys(range);
    load_rows(of_head().value, range, v_, ldv_, rows);
    for (std::size_t j = 0; j < static_cast<std::size_t>(range.end - range.begin); ++j)
      v_[j * ldv_ + columns_] = 1.0f;
  }

  /// φQ and G⁺, zeros up to `rows`.
  HWY_NOINLINE void load_queries(Mask::Interval range, std::size_t rows) {
    load_features(this->own_, this->call_, true, this->head(), of_head().query, range, q_, ldf_, rows, wide_,
                  this->scales_.query.data());
    this->scales_.end_queries(range);
    const View<const float>& normaliser = gradient_call_.normaliser;
    const double log_decay = this->call_.log_decay(this->head());
    const auto count = static_cast<std::size_t>(range.end - range.begin);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t row = static_cast<std::size_t>(range.begin) + i;
      float* g = g_ + i * ldv_;
      if (!this->call_.normalise) {
        load_row(g, of_head().grad_out, row);
        continue;
      }
      const float denominator = *normaliser.at(this->block_.batch, row, this->head());
      // A query's own log-scale cancels; the logarithm of its denominator takes its place.
      if (this->scaled())
        this->scales_.query[i] = static_cast<double>(row) * log_decay - static_cast<double>(denominator);
      const float scale = this->scaled() ? 1.0f : 1.0f / denominator;
      const float* o = row_of(of_head().out, row, wide_);
      g[columns_] = -scaled_dot(g, row_of(of_head().grad_out, row, g), o, scale);
    }
    zero_rows(g_, ldv_, count, rows);
  }

  HWY_NOINLINE void fetch_keys(std::size_t head, Mask::Interval range) {
    fetch(this->ahead_, rows_[head].key, range);
    fetch(this->ahead_, rows_[head].value, range);
  }
  HWY_NOINLINE void fetch_queries(std::size_t head, Mask::Interval range) {
    fetch(this->ahead_, rows_[head].query, range);
    fetch(this->ahead_, rows_[head].grad_out, range);
    fetch(this->ahead_, rows_[head].out, range);
  }

  /// tril(G⁺ V⁺ᵀ), [query, key].
  HWY_NOINLINE void weigh_values(std::size_t rows) {
    transpose(transposed_, this->chunk_, v_, ldv_, rows, columns_ + 1);
    weigh(g_, ldv_, rows, columns_ + 1);
    if (this->decay() != nullptr) this->decay()->fade(weights_, this->chunk_, rows);
    if (this->scaled()) this->scales_.scale_triangle(weights_, this->chunk_, rows);
  }
  /// tril(φQ φKᵀ), without the decay.
  HWY_NOINLINE void weigh_keys(std::size_t rows) {
    transpose(transposed_, this->chunk_, k_, ldf_, rows, features_);
    weigh(q_, ldf_, rows, features_);
    if (this->scaled()) this->scales_.scale_triangle(weights_, this->chunk_, rows);
  }

  /// G⁺ V⁺ᵀ and φQ φKᵀ of the pairs of an edge.
  EdgeWeights weigh_values(const EdgeTile& tile, std::size_t queries, std::size_t keys) {
    transpose(transposed_, kEdge, v_, ldv_, round_up(keys, kRowBlock), columns_ + 1);
    const EdgeWeights weights(tile, queries, keys, weights_, this->ahead_);
    weights.multiply(g_, ldv_, transposed_, columns_ + 1);
    if (this->scaled()) weights.scale(this->scales_);
    return weights;
  }
  EdgeWeights weigh_keys(const EdgeTile& tile, std::size_t queries, std::size_t keys) {
    transpose(transposed_, kEdge, k_, ldf_, round_up(keys, kRowBlock), features_);
    const EdgeWeights weights(tile, queries, keys, weights_, this->ahead_);
    weights.multiply(q_, ldf_, transposed_, features_);
    if (this->scaled()) weights.scale(this->scales_);
    return weights;
  }

  /// result = A S, and where `others` is given + T · others with the triangle T of the weights, or its
  /// transpose: the gradient of the rows' features.
  template <bool kUpper>
  HWY_NOINLINE void feature_gradient(float* result, const float* a, const float* state, std::size_t depth,
                                     const float* others, std::size_t rows) {
    if (others == nullptr)
      for_each_panel(Multiply<Left::plain>{result, ldf_, a, ldv_, state, ldf_, rows, depth, &this->ahead_},
                     width_);
    else
      for_each_panel(MultiplyWithTriangle<kUpper>{result, ldf_, a, ldv_, state, ldf_, weights_, this->chunk_,
                                                  others, ldf_, rows, depth, &this->ahead_},
                     width_);
  }

  /// Rows of the gradient of x from `result_`, that of its features; zeros for rows without a bit in `seen`,
  /// of which nothing is known, not even that they are numbers.
  HWY_NOINLINE void write_through_map(const FloatView& gradient, const InputRows& x, const float* features,
                                      Mask::Interval range, bool query, std::uint32_t seen) {
    const std::int64_t count = range.end - range.begin;
    const auto tile = [&](auto* data, std::size_t columns, std::size_t ld) {
      return View(data, {count, static_cast<std::int64_t>(columns)}, {static_cast<std::int64_t>(ld), 1});
    };
    this->call_.map.backward(tile(transposed_, head_dim_, lde_),
                             tile(static_cast<const float*>(result_), features_, ldf_),
                             input_tile(x, range, wide_), tile(features, features_, ldf_),
                             context_of(this->own_, this->call_, query, this->head(), range.begin));
    write_tile(gradient, transposed_, lde_, range);
    if (gradient_call_.decay_sums != nullptr && this->scaled())
      add_decay_of_rows(features, range, query, seen);
    if (seen == kAll) return;
    for (std::int64_t i = 0; i < count; ++i)
      if ((seen >> i & 1) == 0) clear_tile(gradient, {range.begin + i, range.begin + i + 1});
  }

  /// What rows with log-scales add to γ's gradient. φq_i·dφq_i is 0 where rows are normalised, but for the
  /// roundings that φk_j·dφk_j has too, which then count by the pairs' distances alone.
  HWY_NOINLINE void add_decay_of_rows(const float* features, Mask::Interval range, bool query,
                                      std::uint32_t seen) {
    const std::int64_t origin = gradient_call_.decay_origin(this->block_.batch);
    double sum = 0;
    for (std::int64_t i = 0; i < range.end - range.begin; ++i) {
      if (seen != kAll && (seen >> i & 1) == 0) continue;
      const auto at = static_cast<std::size_t>(i) * ldf_;
      sum += static_cast<double>(range.begin + i - origin) * dot(features + at, result_ + at, width_);
    }
    gradient_call_.decay_sum(!query, this->block_.batch, this->head()) += query ? sum : -sum;
  }

  HWY_NOINLINE void write_tile(const FloatView& gradient, const float* tile, std::size_t ld,
                               Mask::Interval range) {
    const ResultRows to = result_rows(gradient, rows_of(gradient, this->block_.batch, this->head()));
    for (std::int64_t i = 0; i < range.end - range.begin; ++i)
      store_row(to.rows, static_cast<std::size_t>(range.begin + i), tile + static_cast<std::size_t>(i) * ld,
                1.0f, to.stream);
  }

  HWY_NOINLINE void clear_tile(const FloatView& gradient, Mask::Interval range) {
    clear_rows(rows_of(gradient, this->block_.batch, this->head()), static_cast<std::size_t>(range.begin),
               static_cast<std::size_t>(range.end));
  }

  const LinearGradientCall& gradient_call_;
  const std::size_t features_, columns_, head_dim_;  // F, M and E
  const std::size_t width_, value_width_;            // F and M padded
  const std::size_t ldf_, ldm_, ldv_, lde_;          // from row to row of φ, of values, V⁺ and x
  float *q_, *k_, *v_, *g_;                          // φQ, φK [C, F], V⁺ and G⁺ [C, M + 1]
  float *faded_, *result_;                           // [C, F] or [C, M + 1]
  float* transposed_;                                // φKᵀ or V⁺ᵀ, then the gradient of x [C, E]
  float *weights_, *wide_, *power_;                  // [C, C], rows of bf16 widened, [C]

  struct HeadRows {
    InputRows query, key, value, grad_out, out;
  };
  const HeadRows& of_head() const { return rows_[this->index()]; }
  std::vector<HeadRows> rows_;  // of each head

 private:
  void weigh(const float* a, std::size_t lda, std::size_t rows, std::size_t depth) {
    const std::size_t chunk = this->chunk_;
    MultiplyLower{weights_, chunk, a, lda, transposed_, chunk, rows, depth, &this->ahead_}();
  }

  /// The row where it lies, or widened into `wide`.
  static const float* row_of(const InputRows& rows, std::size_t row, float* wide) {
    if (!rows.half()) return rows.from(static_cast<std::int64_t>(row)).floats();
    load_row(wide, rows, row);
    return wide;
  }

  /// to = scale · from, which may be `to`; returns to·o.
  float scaled_dot(float* to, const float* from, const float* HWY_RESTRICT o, float scale) const {
    const F32 d;
    const std::size_t lanes = hn::Lanes(d);
    const Vec32 factor = hn::Set(d, scale);
    Vec32 sum = hn::Zero(d);
    std::size_t m = 0;
    for (; m + lanes <= columns_; m += lanes) {
      const Vec32 part = hn::Mul(hn::LoadU(d, from + m), factor);
      hn::Store(part, d, to + m);
      sum = hn::MulAdd(part, hn::LoadU(d, o + m), sum);
    }
    float dot = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; m < columns_; ++m) {
      to[m] = from[m] * scale;
      dot += to[m] * o[m];
    }
    return dot;
  }
};

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
