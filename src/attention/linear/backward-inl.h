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
  static constexpr std::uint32_t kAll = ~0u;

  BackwardSweep(Context& own, const LinearGradientCall& call, SweepSide side, const LinearBlock& block)
      : Sweep<Task>(own, call.forward, side, block),
        gradient_call_(call),
        features_(static_cast<std::size_t>(call.forward.features)),
        columns_(static_cast<std::size_t>(call.forward.sizes.value_dim)),
        head_dim_(static_cast<std::size_t>(call.forward.sizes.head_dim)),
        width_(RoundUp(features_, kPad)),
        value_width_(RoundUp(columns_, kPad)),
        ldf_(TileStride(features_)),
        ldm_(TileStride(columns_)),
        ldv_(TileStride(columns_ + 1)),
        lde_(RoundUp(head_dim_, kPad)) {}

  void TakeTiles(Workspace& workspace) {
    const std::size_t chunk = this->chunk_;
    q_ = workspace.take_zeroed(chunk * ldf_);
    k_ = workspace.take_zeroed(chunk * ldf_);
    v_ = workspace.take_zeroed(chunk * ldv_);
    g_ = workspace.take_zeroed(chunk * ldv_);
    faded_ = workspace.take_zeroed(chunk * std::max(ldf_, ldv_));
    transposed_ = workspace.take_zeroed(chunk * std::max(ldf_, ldv_));
    result_ = workspace.take_zeroed(chunk * ldf_);
    weights_ = workspace.take_zeroed(chunk * chunk);
    wide_ = workspace.take_zeroed(WideFloats());
    input_gradient_ = workspace.take_zeroed(chunk * lde_);
    power_ = workspace.take_zeroed(chunk);
  }
  std::size_t WideFloats() const { return std::max(this->chunk_ * lde_, ldv_); }

  void SelectHead(std::size_t) {
    const AttentionInputs& inputs = this->call_.inputs;
    const std::int64_t b = this->block_.batch, h = this->head();
    query_ = rows_of(inputs.query, b, h);
    key_ = rows_of(inputs.key, b, h);
    value_ = rows_of(inputs.value, b, h);
    grad_out_ = rows_of(gradient_call_.grad_out, b, h);
    out_ = rows_of(gradient_call_.out, b, h);
  }

  /// φK and V⁺, zeros up to `rows`.
  void LoadKeys(Mask::Interval range, std::size_t rows) {
    LoadFeatures(this->own_, this->call_, false, this->head(), key_, range, k_, ldf_, rows, wide_,
                 this->scales_.key.data());
    this->scales_.EndKeys(range);
    LoadRows(value_, range, v_, ldv_, rows);
    for (std::size_t j = 0; j < static_cast<std::size_t>(range.end - range.begin); ++j)
      v_[j * ldv_ + columns_] = 1.0f;
  }

  /// φQ and G⁺, zeros up to `rows`.
  void LoadQueries(Mask::Interval range, std::size_t rows) {
    LoadFeatures(this->own_, this->call_, true, this->head(), query_, range, q_, ldf_, rows, wide_,
                 this->scales_.query.data());
    this->scales_.EndQueries(range);
    const View<const float>& normaliser = gradient_call_.normaliser;
    const auto count = static_cast<std::size_t>(range.end - range.begin);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t row = static_cast<std::size_t>(range.begin) + i;
      float* g = g_ + i * ldv_;
      if (!this->call_.normalise) {
        LoadRow(g, grad_out_, row);
        continue;
      }
      const float denominator = *normaliser.at(this->block_.batch, row, this->head());
      // A query's own log-scale cancels; the logarithm of its denominator takes its place.
      if (this->scaled()) this->scales_.query[i] = -static_cast<double>(denominator);
      const float scale = this->scaled() ? 1.0f : 1.0f / denominator;
      const float* o = RowOf(out_, row, wide_);
      g[columns_] = -ScaledDot(g, RowOf(grad_out_, row, g), o, scale);
    }
    ZeroRows(g_, ldv_, count, rows);
  }

  void FetchKeys(std::int64_t h, Mask::Interval rows) {
    Fetch(this->ahead_, rows_of(this->call_.inputs.key, this->block_.batch, h), rows);
    Fetch(this->ahead_, rows_of(this->call_.inputs.value, this->block_.batch, h), rows);
  }
  void FetchQueries(std::int64_t h, Mask::Interval rows) {
    Fetch(this->ahead_, rows_of(this->call_.inputs.query, this->block_.batch, h), rows);
    Fetch(this->ahead_, rows_of(gradient_call_.grad_out, this->block_.batch, h), rows);
    Fetch(this->ahead_, rows_of(gradient_call_.out, this->block_.batch, h), rows);
  }
  /// How often the products of a chunk fetch: triangles within it, its rows with S, its columns into S.
  std::size_t Fetches(std::size_t triangles, std::size_t of_chunk, std::size_t of_state) const {
    const std::size_t chunk = this->chunk_, steps = Ahead::kSteps;
    return std::max<std::size_t>(1, triangles * FetchesOf(chunk, kPad, features_, steps) +
                                        of_chunk * FetchesOf(chunk, columns_, features_, steps) +
                                        of_state * FetchesOf(features_, columns_, chunk, steps));
  }

  /// tril(G⁺ V⁺ᵀ), [query, key].
  void WeighValues(std::size_t rows) {
    Transpose(transposed_, this->chunk_, v_, ldv_, rows, columns_ + 1);
    Weigh(g_, ldv_, rows, columns_ + 1);
    if (this->decay() != nullptr) this->decay()->Fade(weights_, this->chunk_, rows);
    if (this->scaled()) this->scales_.ScaleTriangle(weights_, this->chunk_, rows);
  }
  /// tril(φQ φKᵀ), without the decay.
  void WeighKeys(std::size_t rows) {
    Transpose(transposed_, this->chunk_, k_, ldf_, rows, features_);
    Weigh(q_, ldf_, rows, features_);
    if (this->scaled()) this->scales_.ScaleTriangle(weights_, this->chunk_, rows);
  }

  /// G⁺ V⁺ᵀ and φQ φKᵀ of the pairs of an edge.
  EdgeWeights WeighValues(const EdgeTile& tile, std::size_t queries, std::size_t keys) {
    Transpose(transposed_, kEdge, v_, ldv_, RoundUp(keys, kRowBlock), columns_ + 1);
    const EdgeWeights weights(tile, queries, keys, weights_);
    weights.Multiply(g_, ldv_, transposed_, columns_ + 1);
    if (this->scaled()) weights.Scale(this->scales_);
    return weights;
  }
  EdgeWeights WeighKeys(const EdgeTile& tile, std::size_t queries, std::size_t keys) {
    Transpose(transposed_, kEdge, k_, ldf_, RoundUp(keys, kRowBlock), features_);
    const EdgeWeights weights(tile, queries, keys, weights_);
    weights.Multiply(q_, ldf_, transposed_, features_);
    if (this->scaled()) weights.Scale(this->scales_);
    return weights;
  }

  /// result = A S, and where `others` is given + T · others with the triangle T of the weights, or its
  /// transpose: the gradient of the rows' features.
  template <bool kUpper>
  void FeatureGradient(float* result, const float* a, const float* state, std::size_t depth,
                       const float* others, std::size_t rows) {
    if (others == nullptr)
      ForEachPanel(Multiply<Left::plain>{result, ldf_, a, ldv_, state, ldf_, rows, depth, &this->ahead_},
                   width_);
    else
      ForEachPanel(MultiplyWithTriangle<kUpper>{result, ldf_, a, ldv_, state, ldf_, weights_, this->chunk_,
                                                others, ldf_, rows, depth, &this->ahead_},
                   width_);
  }

  /// Rows of the gradient of x from `result_`, that of its features; zeros for rows without a bit in `seen`,
  /// of which nothing is known, not even that they are numbers.
  void WriteThroughMap(const FloatView& gradient, const InputRows& x, const float* features,
                       Mask::Interval range, bool query, std::uint32_t seen) {
    const std::int64_t count = range.end - range.begin;
    const auto tile = [&](auto* data, std::size_t columns, std::size_t ld) {
      return View(data, {count, static_cast<std::int64_t>(columns)}, {static_cast<std::int64_t>(ld), 1});
    };
    this->call_.map.backward(tile(input_gradient_, head_dim_, lde_),
                             tile(static_cast<const float*>(result_), features_, ldf_),
                             InputTile(x, range, wide_), tile(features, features_, ldf_),
                             ContextOf(this->own_, this->call_, query, this->head(), range.begin));
    WriteTile(gradient, input_gradient_, lde_, range);
    if (seen == kAll) return;
    for (std::int64_t i = 0; i < count; ++i)
      if ((seen >> i & 1) == 0) ClearTile(gradient, {range.begin + i, range.begin + i + 1});
  }

  void WriteTile(const FloatView& gradient, const float* tile, std::size_t ld, Mask::Interval range) {
    const OutputRows rows = rows_of(gradient, this->block_.batch, this->head());
    const bool stream = CanStream(gradient);
    for (std::int64_t i = 0; i < range.end - range.begin; ++i)
      StoreRow(rows, static_cast<std::size_t>(range.begin + i), tile + static_cast<std::size_t>(i) * ld, 1.0f,
               stream);
  }

  void ClearTile(const FloatView& gradient, Mask::Interval range) {
    ClearRows(rows_of(gradient, this->block_.batch, this->head()), static_cast<std::size_t>(range.begin),
              static_cast<std::size_t>(range.end));
  }

  const LinearGradientCall& gradient_call_;
  const std::size_t features_, columns_, head_dim_;    // F, M and E
  const std::size_t width_, value_width_;              // F and M padded
  const std::size_t ldf_, ldm_, ldv_, lde_;            // from row to row of φ, of values, V⁺ and x
  float *q_, *k_, *v_, *g_;                            // φQ, φK [C, F], V⁺ and G⁺ [C, M + 1]
  float *faded_, *transposed_, *result_;               // [C, F] or [C, M + 1]
  float *weights_, *wide_, *input_gradient_, *power_;  // [C, C], rows of bf16 widened, [C, E], [C]

  // The head at work.
  InputRows query_, key_, value_, grad_out_, out_;

 private:
  void Weigh(const float* a, std::size_t lda, std::size_t rows, std::size_t depth) {
    const std::size_t chunk = this->chunk_;
    MultiplyLower{weights_, chunk, a, lda, transposed_, chunk, rows, depth, &this->ahead_}();
  }

  /// The row where it lies, or widened into `wide`.
  static const float* RowOf(const InputRows& rows, std::size_t row, float* wide) {
    if (!rows.half()) return rows.from(static_cast<std::int64_t>(row)).floats();
    LoadRow(wide, rows, row);
    return wide;
  }

  /// to = scale · from, which may be `to`; returns to·o.
  float ScaledDot(float* to, const float* from, const float* HWY_RESTRICT o, float scale) const {
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
