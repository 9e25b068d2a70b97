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
    TakeTiles(workspace_);
    value_result_ = workspace_.take_zeroed(chunk_ * ldm_);
    for (std::size_t i = 0; i < heads_; ++i)
      transposed_cores_.push_back({workspace_.take_zeroed(RoundUp(columns_ + 1, 8) * ldf_)});
    value_weights_ = workspace_.take_zeroed(chunk_ * chunk_);
    TakePieces(floats_, workspace_);
  }

  void Run() {
    Walk();
    // Padding is seen by nobody.
    const Mask::Interval padding = {call_.visible_keys(block_.batch), call_.sizes.keys};
    for (std::int64_t h = block_.first_head; h < block_.last_head; ++h) {
      for (const FloatView& gradient : {grad_key_, grad_value_})
        ClearRows(rows_of(gradient, block_.batch, h), static_cast<std::size_t>(padding.begin),
                  static_cast<std::size_t>(padding.end));
    }
  }

 private:
  friend Sweep<KeySweep>;
  using BackwardSweep::SelectHead;

  void FetchRows(const SweepStep& step) {
    const Place next = NextRows(step);
    const bool diagonal = call_.inputs.mask.together();
    ahead_.Start(diagonal ? Fetches(2, 2, 1) : Fetches(0, 2, 0));
    FetchKeys(next.head, next.rows);
    if (diagonal) FetchQueries(next.head, next.rows);
  }
  void FetchOthers(std::int64_t ordinal) {
    const Place next = NextOthers(ordinal);
    ahead_.Start(Fetches(0, 0, 1));
    FetchQueries(next.head, next.rows);
  }

  void LoadOthers(Mask::Interval range, std::size_t rows) { LoadQueries(range, rows); }

  void AddOthers(std::size_t count, Pieces& pieces) {
    float* state = pieces.Open();
    const auto [q, fade] = Enter(pieces, q_, ldf_, width_, count, faded_, power_);
    AddProduct(pieces, {state, ldm_, q, ldf_, g_, ldv_, RoundUp(features_, kRowBlock), count, &ahead_},
               value_width_, fade);
    AddSums(pieces, state + width_ * ldm_, q, ldf_, g_ + columns_, ldv_, count, width_, fade);
  }

  void Rows(const SweepStep& step, const float* core) {
    if (core == nullptr && tiles_.empty()) {
      ClearTile(grad_key_, step.rows);
      return ClearTile(grad_value_, step.rows);
    }
    const auto count = static_cast<std::size_t>(step.rows.end - step.rows.begin);
    std::size_t rows = RoundUp(count, kRowBlock);
    const bool triangle = !tiles_.empty() && tiles_.front().triangle;
    if (triangle) {
      const Mask::Interval queries = tiles_.front().others;
      rows = std::max(rows, RoundUp(static_cast<std::size_t>(queries.end - queries.begin), kRowBlock));
      LoadQueries(queries, rows);
    }
    LoadKeys(step.rows, rows);
    const float* transposed = core != nullptr ? TransposedCore(step, core) : sum_;
    const float* state = core != nullptr ? core : sum_;
    const std::size_t value_depth = core != nullptr ? columns_ + 1 : 0,
                      key_depth = core != nullptr ? features_ : 0;

    const float* v = Meet(step, core, v_, ldv_, RoundUp(columns_ + 1, kPad), rows, faded_, power_);
    if (triangle) WeighValues(rows);
    FeatureGradient<true>(result_, v, transposed, value_depth, triangle ? q_ : nullptr, rows);
    if (triangle && decay() != nullptr) std::memcpy(value_weights_, weights_, rows * chunk_ * sizeof(float));
    const bool edges = tiles_.size() > (triangle ? 1 : 0);
    if (!edges) WriteThroughMap(grad_key_, key_, k_, step.rows, false, kAll);
    const float* k = Meet(step, core, k_, ldf_, width_, rows, faded_, power_);
    if (triangle) {
      WeighKeys(rows);
      if (decay() != nullptr) FadeKeyWeights(rows);
      ForEachPanel(MultiplyWithTriangle<true>{value_result_, ldm_, k, ldf_, state, ldm_, weights_, chunk_, g_,
                                              ldv_, rows, key_depth, &ahead_},
                   value_width_);
      AddWhileLoaded(tiles_.front().others);
    } else {
      ForEachPanel(Multiply<Left::plain>{value_result_, ldm_, k, ldf_, state, ldm_, rows, key_depth, &ahead_},
                   value_width_);
    }
    std::uint32_t seen = core != nullptr || triangle ? kAll : 0;
    for (std::size_t tile = triangle ? 1 : 0; tile < tiles_.size(); ++tile) {
      const Mask::Interval range = tiles_[tile].others;
      const auto queries = static_cast<std::size_t>(range.end - range.begin);
      for (std::size_t i = 0; i < queries; ++i) seen |= tiles_[tile].seen[i];
      LoadQueries(range, RoundUp(queries, kRowBlock));
      WeighValues(tiles_[tile], queries, count).AddToKeys(result_, ldf_, q_, ldf_, width_);
      WeighKeys(tiles_[tile], queries, count).AddToKeys(value_result_, ldm_, g_, ldv_, value_width_);
      AddWhileLoaded(range);
    }
    if (edges) WriteThroughMap(grad_key_, key_, k_, step.rows, false, seen);
    WriteTile(grad_value_, value_result_, ldm_, step.rows);
  }

  /// R⁺ᵀ [M + 1, F]. Under masks without causality it serves many steps.
  const float* TransposedCore(const SweepStep& step, const float* core) {
    const auto index = static_cast<std::size_t>(head() - block_.first_head);
    auto& [transposed, first, next] = transposed_cores_[index];
    if (first == step.first && next == pieces_[index].next()) return transposed;
    first = step.first;
    next = pieces_[index].next();
    Transpose(transposed, ldf_, core, ldm_, features_, columns_);
    std::memcpy(transposed + columns_ * ldf_, core + width_ * ldm_, width_ * sizeof(float));
    return transposed;
  }

  /// γ^(i − j) on the weights of keys, and what the pairs of the diagonal add to γ's gradient.
  void FadeKeyWeights(std::size_t rows) {
    double sum = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      float of_row = 0;
      for (std::size_t j = 0; j < i; ++j)
        of_row += static_cast<float>(i - j) * (value_weights_[i * chunk_ + j] * weights_[i * chunk_ + j]);
      sum += of_row;
    }
    if (gradient_call_.decay_sums != nullptr) gradient_call_.decay_sum(true, block_.batch, head()) += sum;
    decay()->Fade(weights_, chunk_, rows);
  }

  const FloatView &grad_key_, &grad_value_;
  const std::size_t floats_;  // of a state
  Workspace workspace_;
  float* value_result_;   // dV [C, M]
  float* value_weights_;  // [C, C]
  struct TransposedSum {
    float* sum;                          // [M + 1, F]
    std::int64_t first = -1, next = -1;  // of which chunks
  };
  std::vector<TransposedSum> transposed_cores_;  // of each head
};

void RunKeyGradient(Context& own, const LinearGradientCall& call, const FloatView& grad_key,
                    const FloatView& grad_value, const LinearBlock& block) {
  KeySweep(own, call, block, grad_key, grad_value).Run();
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(RunKeyGradient);

void linear_key_gradient(Context& own, const LinearGradientCall& call, FloatView grad_key,
                         FloatView grad_value, const LinearBlock& heads) {
  HWY_DYNAMIC_DISPATCH(RunKeyGradient)(own, call, grad_key, grad_value, heads);
}

}  // namespace linnet
#endif  // HWY_ONCE
