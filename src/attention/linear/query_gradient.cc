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
        floats_(RoundUp(columns_ + 1, kRowBlock) * ldf_),
        of_decay_(call.decay_sums != nullptr),
        workspace_(own) {
    TakeTiles(workspace_);
    TakePieces(floats_, workspace_);
    if (!of_decay_) return;
    distances_ = workspace_.take_zeroed(heads_ * floats_);
    distance_power_ = workspace_.take_zeroed(chunk_);
  }

  void Run() {
    if (call_.continues(block_.batch)) LoadStates();
    const bool to_final = of_decay_ && gradient_call_.reaches_final(block_.batch);
    Walk(to_final ? &plan_.final_step() : nullptr);
    if (to_final && plan_.final_step().has_core(initial_)) AddFinalDecayGradient();
  }

 private:
  friend Sweep<QuerySweep>;
  using BackwardSweep::SelectHead;

  void LoadStates() {
    initial_ = true;
    for (std::size_t i = 0; i < heads_; ++i) {
      const std::int64_t h = block_.first_head + static_cast<std::int64_t>(i);
      float* state = pieces_[i].Initial();
      if (scaled()) pieces_[i].OpenScale() = call_.initial->scale(block_.batch, h);
      for (int part = 0; part < call_.initial->parts(); ++part, state = pieces_[i].rest()) {
        const float* sums = call_.initial->sums(block_.batch, h, part);
        for (std::size_t f = 0; f < features_; ++f)
          for (std::size_t m = 0; m < columns_; ++m) state[m * ldf_ + f] = sums[f * columns_ + m];
        CopyRow(state + columns_ * ldf_, call_.initial->normaliser(block_.batch, h, part), features_);
      }
    }
  }

  void FetchRows(const SweepStep& step) {
    const Place next = NextRows(step);
    const bool diagonal = call_.inputs.mask.together();
    ahead_.Start(diagonal ? Fetches(1, 1, 1) : Fetches(0, 1, 0));
    FetchQueries(next.head, next.rows);
    if (diagonal) FetchKeys(next.head, next.rows);
  }
  void FetchOthers(std::int64_t ordinal) {
    const Place next = NextOthers(ordinal);
    ahead_.Start(Fetches(0, 0, 1));
    FetchKeys(next.head, next.rows);
  }

  void LoadOthers(Mask::Interval range, std::size_t rows) { LoadKeys(range, rows); }

  void AddOthers(std::size_t count, Pieces& pieces) {
    float* state = pieces.Open();
    const auto [k, fade] = Enter(pieces, k_, ldf_, width_, count, faded_, power_);
    if (of_decay_ && decay() != nullptr) AddDistances(count, pieces.fresh() ? nullptr : state, fade);
    // Where M is no multiple of a block of rows, the product's last rows contain the normaliser's.
    const std::size_t rows = RoundUp(columns_, kRowBlock);
    AddProduct(pieces, {state, ldf_, v_, ldv_, k, ldf_, rows, count, &ahead_}, width_, fade);
    if (rows == columns_) AddSums(pieces, state + columns_ * ldf_, k, ldf_, nullptr, 0, count, width_, fade);
  }

  void Rows(const SweepStep& step, const float* core) {
    if (core == nullptr && tiles_.empty()) return ClearTile(gradient_, step.rows);
    const auto count = static_cast<std::size_t>(step.rows.end - step.rows.begin);
    std::size_t rows = RoundUp(count, kRowBlock);
    const bool triangle = !tiles_.empty() && tiles_.front().triangle;
    if (triangle) {
      const Mask::Interval keys = tiles_.front().others;
      rows = std::max(rows, RoundUp(static_cast<std::size_t>(keys.end - keys.begin), kRowBlock));
    }
    LoadQueries(step.rows, rows);
    const float* g = Meet(step, core, g_, ldv_, RoundUp(columns_ + 1, kPad), rows, faded_, power_);
    const float* state = core != nullptr ? core : sum_;
    const std::size_t depth = core != nullptr ? columns_ + 1 : 0;
    if (triangle) {
      LoadKeys(tiles_.front().others, rows);
      WeighValues(rows);
    }
    if (decay() != nullptr && core != nullptr) {
      // In the same order whether γ's gradient is wanted or not: the bits of dφQ do not depend on it.
      FeatureGradient<false>(result_, g, state, depth, nullptr, rows);
      if (of_decay_) AddDecayGradient(step, g, count, rows);
      if (triangle) {
        FeatureGradient<false>(transposed_, g, state, 0, k_, rows);
        AddTile(result_, transposed_, ldf_, rows, width_);
      }
    } else {
      FeatureGradient<false>(result_, g, state, depth, triangle ? k_ : nullptr, rows);
    }
    if (triangle) AddWhileLoaded(tiles_.front().others);
    std::uint32_t seen = core != nullptr || triangle ? kAll : 0;
    for (std::size_t tile = triangle ? 1 : 0; tile < tiles_.size(); ++tile) {
      const Mask::Interval range = tiles_[tile].others;
      const auto keys = static_cast<std::size_t>(range.end - range.begin);
      for (std::size_t i = 0; i < count; ++i) seen |= std::uint32_t{tiles_[tile].seen[i] != 0} << i;
      LoadKeys(range, RoundUp(keys, kRowBlock));
      WeighValues(tiles_[tile], count, keys).AddToQueries(result_, ldf_, k_, ldf_, width_);
      AddWhileLoaded(range);
    }
    WriteThroughMap(gradient_, query_, q_, step.rows, true, seen);
  }

  // γ dL/dγ = Σ (i − j) A_ij, A_ij = γ^(i − j) φq_i·(φk_j V⁺_jᵀ) G⁺_i. With c the end of the state's chunks,
  // (i − j) is (i − c + 1) + (c − 1 − j): the first part weighs what a row takes from S⁺, the second is kept
  // as a state of its own, D = Σ (c − 1 − j) γ^(c − 1 − j) φk_j V⁺_jᵀ. No distance is ever the difference of
  // two positions, which would lose their digits.
  float* Distances() const {
    return distances_ + static_cast<std::size_t>(head() - block_.first_head) * floats_;
  }

  /// D = γ^n (D + n S⁺) + Σ (n − 1 − l) γ^(n − 1 − l) φk_l V⁺_lᵀ for the n keys that are loaded; `power_`
  /// holds γ^(n − 1 − l).
  void AddDistances(std::size_t count, const float* state, float fade) {
    float* distances = Distances();
    for (std::size_t l = 0; l < count; ++l)
      distance_power_[l] = power_[l] * static_cast<float>(count - 1 - l);
    ScaleRows(transposed_, k_, ldf_, distance_power_, count, width_);
    if (state == nullptr) {
      std::memset(distances, 0, floats_ * sizeof(float));
    } else {
      const F32 d;
      const Vec32 factor = hn::Set(d, fade), keys = hn::Set(d, static_cast<float>(count));
      for (std::size_t i = 0; i < floats_; i += hn::Lanes(d)) {
        const Vec32 sum = hn::MulAdd(keys, hn::Load(d, state + i), hn::Load(d, distances + i));
        hn::Store(hn::Mul(factor, sum), d, distances + i);
      }
    }
    ForEachPanel(Multiply<Left::transposed, Into::add>{distances, ldf_, v_, ldv_, transposed_, ldf_,
                                                       RoundUp(columns_ + 1, kRowBlock), count, &ahead_},
                 width_);
  }

  /// What the step's rows take from states for γ's gradient; `result_` is what they take from S⁺ by `g`.
  void AddDecayGradient(const SweepStep& step, const float* g, std::size_t count, std::size_t rows) {
    FeatureGradient<false>(transposed_, g, Distances(), columns_ + 1, nullptr, rows);
    double& sum = gradient_call_.decay_sum(false, block_.batch, head());
    for (std::size_t i = 0; i < count; ++i) {
      const double distance =
          static_cast<double>(step.rows.begin - CoreEnd(step) + 1) + static_cast<double>(i);
      sum += distance * Dot(q_ + i * ldf_, result_ + i * ldf_, width_) +
             Dot(q_ + i * ldf_, transposed_ + i * ldf_, width_);
    }
  }

  /// The final state S⁺ depends on γ by γ dS⁺/dγ = D, D as it is behind the last visible key.
  void AddFinalDecayGradient() {
    const float* gradient = gradient_call_.grad_final.at(block_.batch);
    for (std::int64_t h = block_.first_head; h < block_.last_head; ++h) {
      const float* sums = gradient + gradient_call_.sums_at(h);
      const float* z = gradient + gradient_call_.normaliser_at(h);
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
  const bool of_decay_;       // whether γ's gradient is wanted
  Workspace workspace_;
  float *distances_ = nullptr, *distance_power_ = nullptr;  // D of each head, [C]
};

void RunQueryGradient(Context& own, const LinearGradientCall& call, const FloatView& gradient,
                      const LinearBlock& block) {
  QuerySweep(own, call, block, gradient).Run();
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(RunQueryGradient);

void linear_query_gradient(Context& own, const LinearGradientCall& call, FloatView grad_query,
                           const LinearBlock& heads) {
  HWY_DYNAMIC_DISPATCH(RunQueryGradient)(own, call, grad_query, heads);
}

}  // namespace linnet
#endif  // HWY_ONCE
