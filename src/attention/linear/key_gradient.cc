#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/linear/key_gradient.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/linear/backward-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// dφK_j = R⁺_j V⁺_j and dV_j = R_jᵀ φK_j, from the end of the sequence. The state is R [F, M], then the
/// normaliser's column of R⁺ [F].
class KeySweep : public BackwardSweep<KeySweep> {
 public:
  KeySweep(Context& own, const LinearGradientCall& call, const LinearBlock& block, const FloatView& grad_key,
           const FloatView& grad_value)
      : BackwardSweep(own, call, SweepSide::keys, block),
        grad_key_(grad_key),
        grad_value_(grad_value),
        floats_(width_ * ldm_ + width_),
        workspace_(own) {
    take_tiles(workspace_);
    value_result_ = workspace_.take_zeroed(chunk_ * ldm_);
    for (std::size_t i = 0; i < heads_; ++i)
      transposed_cores_.push_back({workspace_.take_zeroed(round_up(columns_ + 1, 8) * ldf_)});
    value_weights_ = workspace_.take_zeroed(chunk_ * chunk_);
    take_pieces(floats_, workspace_);
  }

  void run() {
    if (gradient_call_.reaches_final(block_.batch)) load_final_gradient();
    const bool to_initial = gradient_call_.grad_initial.rank() != 0;
    if (grad_key_.rank() == 0) {
      gather(plan_.final_step());
      return store_initial_gradient();
    }
    walk(to_initial ? &plan_.final_step() : nullptr);
    hwy::FlushStream();
    if (to_initial) store_initial_gradient();
    // Padding is seen by nobody.
    const Mask::Interval padding = {call_.visible_keys(block_.batch), call_.sizes.keys};
    for (std::int64_t h = block_.first_head; h < block_.last_head; ++h) {
      for (const FloatView& gradient : {grad_key_, grad_value_})
        clear_rows(rows_of(gradient, block_.batch, h), static_cast<std::size_t>(padding.begin),
                   static_cast<std::size_t>(padding.end));
    }
  }

 private:
  static constexpr std::size_t kProducts = 2;

  friend Sweep<KeySweep>;

  void fetch_rows(std::size_t head, Mask::Interval range) { fetch_keys(head, range); }
  void fetch_others(std::size_t head, Mask::Interval range) { fetch_queries(head, range); }
  void load_others(Mask::Interval range, std::size_t rows) { load_queries(range, rows); }

  void add_others(std::size_t first, std::size_t count, Pieces& pieces) {
    float* state = pieces.open();
    const auto [q, fade] = enter(pieces, q_, ldf_, width_, first, count, faded_, power_);
    const float* g = g_ + first * ldv_;
    add_product(pieces, {state, ldm_, q, ldf_, g, ldv_, round_up(features_, kRowBlock), count, &ahead_},
                value_width_, fade);
    add_sums(pieces, state + width_ * ldm_, q, ldf_, g + columns_, ldv_, count, width_, fade);
    if (adds_final_ && plan_.chunk(pieces.next()).begin == call_.visible_keys(block_.batch))
      add_final_gradient(state);
  }

  /// The gradient of the final state joins R⁺ behind the last visible key, which is before the first query of
  /// the sweep, unless there is padding. Only a decay of the sums tells the two apart.
  void load_final_gradient() {
    adds_final_ = call_.decays() && call_.visible_keys(block_.batch) < call_.sizes.queries;
    if (adds_final_) return;
    initial_ = true;
    for (std::size_t i = 0; i < heads_; ++i) {
      turn_to(i);
      float* state = pieces_[i].initial();
      if (scaled()) {
        // Relative to e^−M, with M the log-scale of the final state. An empty one has no gradient.
        const double scale = final_scale();
        pieces_[i].open_scale() = scale == kNoScale ? kNoScale : -scale;
        if (scale == kNoScale) continue;
      }
      add_final_gradient(state);
    }
  }
  void add_final_gradient(float* state) {
    const float* gradient = gradient_call_.grad_final.at(block_.batch);
    const float* sums = gradient + gradient_call_.sums_at(head());
    const float* z = gradient + gradient_call_.key_sum_at(head());
    for (std::size_t f = 0; f < features_; ++f) {
      for (std::size_t m = 0; m < columns_; ++m) state[f * ldm_ + m] += sums[f * columns_ + m];
      state[width_ * ldm_ + f] += z[f];
    }
  }

  /// The log-scale of the head's final state, as the forward pass found it, counted as those of keys.
  double final_scale() {
    const Mask::Interval kept = kept_keys(call_.inputs.mask, block_.batch, call_.sizes.keys);
    double scale = kNoScale;
    if (kept.begin == 0 && call_.continues(block_.batch))
      scale = call_.initial->scale(block_.batch, head()) + call_.log_decay(head());
    for (std::int64_t first = kept.begin; first < kept.end; first += call_.chunk()) {
      const Mask::Interval range = {first, std::min(first + call_.chunk(), kept.end)};
      load_keys(range, chunk_);
      scale = largest_scale(scales_.key.data(), static_cast<std::size_t>(range.end - range.begin), scale);
    }
    return scale;
  }

  /// That of the initial state is R⁺ before the first query.
  void store_initial_gradient() {
    const bool any = plan_.final_step().has_core(initial_);
    for (std::size_t i = 0; i < heads_; ++i) {
      const std::int64_t h = block_.first_head + static_cast<std::int64_t>(i);
      float* gradient = gradient_call_.grad_initial.at(block_.batch);
      float* sums = gradient + gradient_call_.sums_at(h);
      float* z = gradient + gradient_call_.key_sum_at(h);
      const float* state = any ? pieces_[i].sum(sum_) : nullptr;
      if (state == nullptr) {
        std::fill_n(sums, features_ * columns_, 0.0f);
        std::fill_n(z, features_, 0.0f);
        continue;
      }
      float scale = 1;
      // What an empty state would weigh is nothing, whatever its memory holds.
      if (scaled())
        scale =
            call_.continues(block_.batch)
                ? exp_of(call_.initial->scale(block_.batch, h) + call_.log_decay(h) + pieces_[i].sum_scale())
                : 0;
      for (std::size_t f = 0; f < features_; ++f)
        copy_row(sums + f * columns_, state + f * ldm_, columns_, scale);
      copy_row(z, state + width_ * ldm_, features_, scale);
    }
  }

  void rows(const SweepStep& step, const float* core) {
    if (core == nullptr && tiles_.empty()) {
      clear_tile(grad_key_, step.rows);
      return clear_tile(grad_value_, step.rows);
    }
    const auto count = static_cast<std::size_t>(step.rows.end - step.rows.begin);
    std::size_t rows = round_up(count, kRowBlock);
    const bool triangle = !tiles_.empty() && tiles_.front().triangle;
    if (triangle) {
      const Mask::Interval queries = tiles_.front().others;
      rows = std::max(rows, round_up(static_cast<std::size_t>(queries.end - queries.begin), kRowBlock));
      load_queries(queries, rows);
    }
    load_keys(step.rows, rows);
    const float* transposed = core != nullptr ? transposed_core(step, core) : sum_;
    const float* state = core != nullptr ? core : sum_;
    const std::size_t value_depth = core != nullptr ? columns_ + 1 : 0,
                      key_depth = core != nullptr ? features_ : 0;

    const float* v = meet(step, core, v_, ldv_, round_up(columns_ + 1, kPad), rows, faded_, power_);
    if (triangle) weigh_values(rows);
    feature_gradient<true>(result_, v, transposed, value_depth, triangle ? q_ : nullptr, rows);
    if (triangle && decay() != nullptr) std::memcpy(value_weights_, weights_, rows * chunk_ * sizeof(float));
    const bool edges = tiles_.size() > (triangle ? 1 : 0);
    if (!edges) write_through_map(grad_key_, of_head().key, k_, step.rows, false, kAll);
    const float* k = meet(step, core, k_, ldf_, width_, rows, faded_, power_);
    // Where nothing comes behind the products, they write the rows of dV themselves.
    const ResultRows to = result_rows(grad_value_, rows_of(grad_value_, block_.batch, head()));
    const bool direct = !edges && count == rows && to.whole;
    float* out = direct ? to.rows.from(step.rows.begin).floats() : value_result_;
    const std::size_t ldo = direct ? static_cast<std::size_t>(to.rows.stride) : ldm_;
    const std::size_t width = direct ? columns_ : value_width_;
    const Finish finish = {nullptr, direct && to.stream};
    if (triangle) {
      weigh_keys(rows);
      if (decay() != nullptr) {
        if (gradient_call_.decay_sums != nullptr) add_decay_of_pairs(rows);
        decay()->fade(weights_, chunk_, rows);
      }
      for_each_panel(MultiplyWithTriangle<true>{out, ldo, k, ldf_, state, ldm_, weights_, chunk_, g_, ldv_,
                                                rows, key_depth, &ahead_, finish},
                     width);
      add_while_loaded(tiles_.front().others);
    } else {
      for_each_panel(Multiply<Left::plain>{out, ldo, k, ldf_, state, ldm_, rows, key_depth, &ahead_, finish},
                     width);
    }
    std::uint32_t seen = core != nullptr || triangle ? kAll : 0;
    for (std::size_t tile = triangle ? 1 : 0; tile < tiles_.size(); ++tile) {
      const Mask::Interval range = tiles_[tile].others;
      const auto queries = static_cast<std::size_t>(range.end - range.begin);
      for (std::size_t i = 0; i < queries; ++i) seen |= tiles_[tile].seen[i];
      load_queries(range, round_up(queries, kRowBlock));
      weigh_values(tiles_[tile], queries, count).add_to_keys(result_, ldf_, q_, ldf_, width_);
      weigh_keys(tiles_[tile], queries, count).add_to_keys(value_result_, ldm_, g_, ldv_, value_width_);
      add_while_loaded(range);
    }
    if (edges) write_through_map(grad_key_, of_head().key, k_, step.rows, false, seen);
    if (!direct) write_tile(grad_value_, value_result_, ldm_, step.rows);
  }

  /// R⁺ᵀ [M + 1, F]. Under masks without causality it serves many steps.
  const float* transposed_core(const SweepStep& step, const float* core) {
    const auto index = static_cast<std::size_t>(head() - block_.first_head);
    auto& [transposed, first, next] = transposed_cores_[index];
    if (first == step.first && next == pieces_[index].next()) return transposed;
    first = step.first;
    next = pieces_[index].next();
    transpose(transposed, ldf_, core, ldm_, features_, columns_);
    std::memcpy(transposed + columns_ * ldf_, core + width_ * ldm_, width_ * sizeof(float));
    return transposed;
  }

  /// What the pairs of the diagonal add to γ's gradient.
  void add_decay_of_pairs(std::size_t rows) {
    double sum = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      float of_row = 0;
      for (std::size_t j = 0; j < i; ++j)
        of_row += static_cast<float>(i - j) * (value_weights_[i * chunk_ + j] * weights_[i * chunk_ + j]);
      sum += of_row;
    }
    gradient_call_.decay_sum(true, block_.batch, head()) += sum;
  }

  const FloatView &grad_key_, &grad_value_;
  const std::size_t floats_;  // of a state
  bool adds_final_ = false;   // the gradient of the final state comes in along the way
  Workspace workspace_;
  float* value_result_;   // dV [C, M]
  float* value_weights_;  // [C, C]
  struct TransposedSum {
    float* sum;                          // [M + 1, F]
    std::int64_t first = -1, next = -1;  // of which chunks
  };
  std::vector<TransposedSum> transposed_cores_;  // of each head
};

void run_key_gradient(Context& own, const LinearGradientCall& call, const FloatView& grad_key,
                      const FloatView& grad_value, const LinearBlock& block) {
  KeySweep(own, call, block, grad_key, grad_value).run();
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(run_key_gradient);

void linear_key_gradient(Context& own, const LinearGradientCall& call, FloatView grad_key,
                         FloatView grad_value, const LinearBlock& heads) {
  HWY_DYNAMIC_DISPATCH(run_key_gradient)(own, call, grad_key, grad_value, heads);
}

}  // namespace linnet
#endif  // HWY_ONCE
