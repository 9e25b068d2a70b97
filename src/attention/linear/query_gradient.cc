#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/linear/query_gradient.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/linear/backward-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// dφQ_i = S⁺_i G⁺_i. The state is S⁺ᵀ [M + 1, F].
class QuerySweep : public BackwardSweep<QuerySweep> {
 public:
  QuerySweep(Context& own, const LinearGradientCall& call, const LinearBlock& block,
             const FloatView& gradient)
      : BackwardSweep(own, call, SweepSide::queries, block),
        gradient_(gradient),
        floats_(round_up(columns_ + 1, kRowBlock) * ldf_),
        of_decay_(call.decay_sums != nullptr && call.forward.decays()),
        workspace_(own) {
    take_tiles(workspace_);
    take_pieces(floats_, workspace_);
    if (!of_decay_) return;
    distances_ = workspace_.take_zeroed(heads_ * floats_);
    distance_power_ = workspace_.take_zeroed(chunk_);
  }

  void run() {
    if (call_.continues(block_.batch)) load_states();
    const bool to_final = of_decay_ && gradient_call_.reaches_final(block_.batch);
    walk(to_final ? &plan_.final_step() : nullptr);
    hwy::FlushStream();
    if (to_final && plan_.final_step().has_core(initial_)) add_final_decay_gradient();
  }

 private:
  static constexpr std::size_t kProducts = 1;

  friend Sweep<QuerySweep>;

  void load_states() {
    initial_ = true;
    for (std::size_t i = 0; i < heads_; ++i) {
      const std::int64_t h = block_.first_head + static_cast<std::int64_t>(i);
      float* state = pieces_[i].initial();
      if (scaled()) pieces_[i].open_scale() = call_.initial->scale(block_.batch, h) + call_.log_decay(h);
      for (int part = 0; part < call_.initial->parts(); ++part, state = pieces_[i].rest()) {
        const float* sums = call_.initial->sums(block_.batch, h, part);
        for (std::size_t f = 0; f < features_; ++f)
          for (std::size_t m = 0; m < columns_; ++m) state[m * ldf_ + f] = sums[f * columns_ + m];
        copy_row(state + columns_ * ldf_, call_.initial->key_sum(block_.batch, h, part), features_);
      }
    }
  }

  void fetch_rows(std::size_t head, Mask::Interval range) { fetch_queries(head, range); }
  void fetch_others(std::size_t head, Mask::Interval range) { fetch_keys(head, range); }
  void load_others(Mask::Interval range, std::size_t rows) { load_keys(range, rows); }

  void add_others(std::size_t first, std::size_t count, Pieces& pieces) {
    float* state = pieces.open();
    const auto [k, fade] = enter(pieces, k_, ldf_, width_, first, count, faded_, power_);
    if (of_decay_ && decay() != nullptr) add_distances(first, count, pieces.fresh() ? nullptr : state, fade);
    // Where M is no multiple of a block of rows, the product's last rows contain the normaliser's.
    const std::size_t rows = round_up(columns_, kRowBlock);
    add_product(pieces, {state, ldf_, v_ + first * ldv_, ldv_, k, ldf_, rows, count, &ahead_}, width_, fade);
    if (rows == columns_) add_sums(pieces, state + columns_ * ldf_, k, ldf_, nullptr, 0, count, width_, fade);
  }

  void rows(const SweepStep& step, const float* core) {
    if (core == nullptr && tiles_.empty()) return clear_tile(gradient_, step.rows);
    const auto count = static_cast<std::size_t>(step.rows.end - step.rows.begin);
    std::size_t rows = round_up(count, kRowBlock);
    const bool triangle = !tiles_.empty() && tiles_.front().triangle;
    if (triangle) {
      const Mask::Interval keys = tiles_.front().others;
      rows = std::max(rows, round_up(static_cast<std::size_t>(keys.end - keys.begin), kRowBlock));
    }
    load_queries(step.rows, rows);
    const float* g = meet(step, core, g_, ldv_, round_up(columns_ + 1, kPad), rows, faded_, power_);
    const float* state = core != nullptr ? core : sum_;
    const std::size_t depth = core != nullptr ? columns_ + 1 : 0;
    if (triangle) {
      load_keys(tiles_.front().others, rows);
      weigh_values(rows);
    }
    if (decay() != nullptr && core != nullptr) {
      // In the same order whether γ's gradient is wanted or not: the bits of dφQ do not depend on it.
      feature_gradient<false>(result_, g, state, depth, nullptr, rows);
      if (of_decay_) add_decay_gradient(step, g, count, rows);
      if (triangle) {
        feature_gradient<false>(transposed_, g, state, 0, k_, rows);
        add_tile(result_, transposed_, ldf_, rows, width_);
      }
    } else {
      feature_gradient<false>(result_, g, state, depth, triangle ? k_ : nullptr, rows);
    }
    if (triangle) add_while_loaded(tiles_.front().others);
    std::uint32_t seen = core != nullptr || triangle ? kAll : 0;
    for (std::size_t tile = triangle ? 1 : 0; tile < tiles_.size(); ++tile) {
      const Mask::Interval range = tiles_[tile].others;
      const auto keys = static_cast<std::size_t>(range.end - range.begin);
      for (std::size_t i = 0; i < count; ++i) seen |= std::uint32_t{tiles_[tile].seen[i] != 0} << i;
      load_keys(range, round_up(keys, kRowBlock));
      weigh_values(tiles_[tile], count, keys).add_to_queries(result_, ldf_, k_, ldf_, width_);
      add_while_loaded(range);
    }
    write_through_map(gradient_, of_head().query, q_, step.rows, true, seen);
  }

  // γ dL/dγ = Σ (i − j) A_ij, A_ij = γ^(i − j) φq_i·(φk_j V⁺_jᵀ) G⁺_i. With c the end of the state's chunks,
  // (i − j) is (i − c + 1) + (c − 1 − j): the first part weighs what a row takes from S⁺, the second is kept
  // as a state of its own, D = Σ (c − 1 − j) γ^(c − 1 − j) φk_j V⁺_jᵀ. No distance is ever the difference of
  // two positions, which would lose their digits.
  float* distances_of_head() const {
    return distances_ + static_cast<std::size_t>(head() - block_.first_head) * floats_;
  }

  /// D = γ^n (D + n S⁺) + Σ (n − 1 − l) γ^(n − 1 − l) φk_l V⁺_lᵀ for n of the keys that are loaded, from key
  /// `first` on; `power_` holds γ^(n − 1 − l).
  void add_distances(std::size_t first, std::size_t count, const float* state, Fade fade) {
    float* distances = distances_of_head();
    for (std::size_t l = 0; l < count; ++l)
      distance_power_[l] = power_[l] * static_cast<float>(count - 1 - l);
    scale_rows(transposed_, k_ + first * ldf_, ldf_, distance_power_, count, width_);
    if (state == nullptr) {
      std::memset(distances, 0, floats_ * sizeof(float));
    } else {
      const F32 d;
      const Vec32 kept = hn::Set(d, fade.kept), lost = hn::Set(d, fade.lost);
      const Vec32 keys = hn::Set(d, static_cast<float>(count));
      for (std::size_t i = 0; i < floats_; i += hn::Lanes(d)) {
        const Vec32 sum = hn::MulAdd(keys, hn::Load(d, state + i), hn::Load(d, distances + i));
        hn::Store(hn::NegMulAdd(lost, sum, hn::Mul(kept, sum)), d, distances + i);
      }
    }
    for_each_panel(
        Multiply<Left::transposed, Into::add>{distances, ldf_, v_ + first * ldv_, ldv_, transposed_, ldf_,
                                              round_up(columns_ + 1, kRowBlock), count, &ahead_},
        width_);
  }

  /// What the step's rows take from states for γ's gradient; `result_` is what they take from S⁺ by `g`.
  void add_decay_gradient(const SweepStep& step, const float* g, std::size_t count, std::size_t rows) {
    feature_gradient<false>(transposed_, g, distances_of_head(), columns_ + 1, nullptr, rows);
    double& sum = gradient_call_.decay_sum(false, block_.batch, head());
    for (std::size_t i = 0; i < count; ++i) {
      const double distance =
          static_cast<double>(step.rows.begin - core_end(step) + 1) + static_cast<double>(i);
      sum += distance * dot(q_ + i * ldf_, result_ + i * ldf_, width_) +
             dot(q_ + i * ldf_, transposed_ + i * ldf_, width_);
    }
  }

  /// The final state S⁺ depends on γ by γ dS⁺/dγ = D, D as it is behind the last visible key.
  void add_final_decay_gradient() {
    const float* gradient = gradient_call_.grad_final.at(block_.batch);
    for (std::int64_t h = block_.first_head; h < block_.last_head; ++h) {
      const float* sums = gradient + gradient_call_.sums_at(h);
      const float* z = gradient + gradient_call_.key_sum_at(h);
      const float* distances = distances_ + static_cast<std::size_t>(h - block_.first_head) * floats_;
      double& sum = gradient_call_.decay_sum(false, block_.batch, h);
      for (std::size_t f = 0; f < features_; ++f) {
        double of_feature = static_cast<double>(z[f]) * distances[columns_ * ldf_ + f];
        for (std::size_t m = 0; m < columns_; ++m)
          of_feature += static_cast<double>(sums[f * columns_ + m]) * distances[m * ldf_ + f];
        sum += of_feature;
      }
    }
  }

  const FloatView& gradient_;
  const std::size_t floats_;  // of a state
  const bool of_decay_;       // whether γ's gradient is wanted, and sums are multiplied by γ
  Workspace workspace_;
  float *distances_ = nullptr, *distance_power_ = nullptr;  // D of each head, [C]
};

void run_query_gradient(Context& own, const LinearGradientCall& call, const FloatView& gradient,
                        const LinearBlock& block) {
  QuerySweep(own, call, block, gradient).run();
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(run_query_gradient);

void linear_query_gradient(Context& own, const LinearGradientCall& call, FloatView grad_query,
                           const LinearBlock& heads) {
  HWY_DYNAMIC_DISPATCH(run_query_gradient)(own, call, grad_query, heads);
}

}  // namespace linnet
#endif  // HWY_ONCE
