#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/linear/linear_backward.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/linear/linear_tiles-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// The backward pass of one head. With the normaliser as one more column of values, V⁺ = [V, 1], and
/// G⁺ = [g/d, −(g·o)/d], the gradients are
///   dφQ_i = S⁺_i G⁺_i,  dφK_j = R⁺_j V⁺_j,  dV_j = R_jᵀ φK_j,  S⁺_i = Σ_{j≤i} φK_j V⁺_jᵀ,  R⁺_j = Σ_{i≥j}
///   φQ_i G⁺_iᵀ
/// (Katharopoulos et al. 2020, equations 13 to 15, with the normaliser's part), computed chunk by chunk: S⁺
/// is swept forwards for the queries, R⁺ from the end for the keys and values. Neither is stored along the
/// sequence.
class BackwardHead {
 public:
  BackwardHead(const LinearGradientCall& call, std::int64_t b, std::int64_t h)
      : call_(call.forward),
        head_(h),
        features_(static_cast<std::size_t>(call_.features)),
        columns_(static_cast<std::size_t>(call_.sizes.value_dim)),
        ldf_(RoundUp(features_, kPad)),
        ldm_(RoundUp(columns_, kPad)),
        ldv_(RoundUp(columns_ + 1, kPad)),
        queries_(static_cast<std::size_t>(call_.sizes.queries)),
        keys_(static_cast<std::size_t>(call_.visible_keys(b))),
        query_(RowsOf(call_.inputs.query, b, h)),
        key_(RowsOf(call_.inputs.key, b, h)),
        value_(RowsOf(call_.inputs.value, b, h)),
        grad_out_(RowsOf(call.grad_out, b, h)),
        out_(RowsOf(call.out, b, h)),
        normaliser_(call.normaliser.at(b, 0, h)),
        normaliser_step_(call.normaliser.stride(1)),
        sees_keys_(call_.sees_keys(b)),
        scratch_(4 * kChunk * ldf_ + 4 * kChunk * ldv_ + 2 * kChunk * kChunk + ldf_ * (ldm_ + ldv_ + 2)),
        q_(zeroed(kChunk * ldf_)),
        k_(zeroed(kChunk * ldf_)),
        v_(zeroed(kChunk * ldv_)),
        g_(zeroed(kChunk * ldv_)),
        v_transposed_(zeroed(kChunk * ldv_)),
        result_(zeroed(kChunk * std::max(ldf_, ldv_))),
        weights_(zeroed(kChunk * kChunk)),
        z_(zeroed(ldf_)),
        state_transposed_(zeroed(ldv_ * ldf_)) {}

  void QueryGradient(View<float> grad_query, std::int64_t b) {
    const View<float> gradient = RowsOf(grad_query, b, head_);
    if (!sees_keys_) return Assign(gradient, 0, queries_);
    if (call_.initial != nullptr) LoadState(b);
    const bool causal = call_.causal();
    if (!causal) {
      for (std::size_t first = 0; first < keys_; first += kChunk) {
        const std::size_t count = std::min(kChunk, keys_ - first);
        LoadKeys(first, count, count);
        AddKeysToState(count);
      }
    }
    for (std::size_t first = 0; first < queries_; first += kChunk) {
      const std::size_t count = std::min(kChunk, queries_ - first), rows = RoundUp(count, kRowBlock);
      LoadFeatures(call_, true, head_, query_, first, count, q_, ldf_, rows);
      LoadGradient(first, count, rows);
      if (causal) {
        const std::size_t seen = Seen(first, count);
        LoadKeys(first, seen, rows);
        MultiplyGradientByValues(rows);
        ForEachPanel(MultiplyWithTriangle<false>{result_, ldf_, g_, ldv_, state_transposed_, ldf_, weights_,
                                                 kChunk, k_, ldf_, rows, columns_ + 1},
                     ldf_);
        if (seen > 0 && first + count < queries_) AddKeysToState(seen);
      } else {
        ForEachPanel(Multiply<Left::plain, false>{result_, ldf_, g_, ldv_, state_transposed_, ldf_, rows,
                                                  columns_ + 1},
                     ldf_);
      }
      WriteThroughMap(gradient, query_, q_, first, count, true);
    }
  }

  void KeyGradient(View<float> grad_key, View<float> grad_value, std::int64_t b) {
    const View<float> key_gradient = RowsOf(grad_key, b, head_),
                      value_gradient = RowsOf(grad_value, b, head_);
    const auto keys = static_cast<std::size_t>(call_.sizes.keys);
    Assign(key_gradient, keys_, keys);
    Assign(value_gradient, keys_, keys);
    if (keys_ == 0) return;
    k_transposed_ = zeroed(ldf_ * kChunk);
    sums_ = zeroed(ldf_ * ldm_);
    more_weights_ = zeroed(kChunk * kChunk);
    const bool causal = call_.causal();
    if (!causal) {
      for (std::size_t first = 0; first < queries_; first += kChunk) {
        const std::size_t count = std::min(kChunk, queries_ - first);
        LoadFeatures(call_, true, head_, query_, first, count, q_, ldf_, count);
        LoadGradient(first, count, count);
        AddQueriesToState(count);
      }
      TransposeState();
    }
    const std::size_t chunks = ((causal ? queries_ : keys_) + kChunk - 1) / kChunk;
    for (std::size_t chunk = chunks; chunk-- > 0;) {
      const std::size_t first = chunk * kChunk;
      const std::size_t count = std::min(kChunk, (causal ? queries_ : keys_) - first);
      const std::size_t rows = RoundUp(count, kRowBlock), seen = Seen(first, count);
      if (causal) {
        LoadFeatures(call_, true, head_, query_, first, count, q_, ldf_, rows);
        LoadGradient(first, count, rows);
      }
      if (seen > 0) {
        LoadKeys(first, seen, rows);
        if (causal) {
          MultiplyGradientByValues(rows);
          Transpose(k_transposed_, kChunk, k_, ldf_, rows, features_);
          MultiplyLower{more_weights_, kChunk, q_, ldf_, k_transposed_, kChunk, rows, features_}();
          ForEachPanel(MultiplyWithTriangle<true>{result_, ldf_, v_, ldv_, state_transposed_, ldf_, weights_,
                                                  kChunk, q_, ldf_, rows, columns_ + 1},
                       ldf_);
        } else {
          ForEachPanel(Multiply<Left::plain, false>{result_, ldf_, v_, ldv_, state_transposed_, ldf_, rows,
                                                    columns_ + 1},
                       ldf_);
        }
        WriteThroughMap(key_gradient, key_, k_, first, seen, false);
        if (causal) {
          ForEachPanel(MultiplyWithTriangle<true>{result_, ldm_, k_, ldf_, sums_, ldm_, more_weights_, kChunk,
                                                  g_, ldv_, rows, features_},
                       ldm_);
        } else {
          ForEachPanel(Multiply<Left::plain, false>{result_, ldm_, k_, ldf_, sums_, ldm_, rows, features_},
                       ldm_);
        }
        for (std::size_t i = 0; i < seen; ++i)
          CopyRow(value_gradient.at(first + i), result_ + i * ldm_, columns_);
      }
      if (causal && chunk > 0) {
        AddQueriesToState(count);
        TransposeState();
      }
    }
  }

 private:
  float* zeroed(std::size_t floats) {
    float* memory = scratch_.take(floats);
    std::memset(memory, 0, floats * sizeof(float));
    return memory;
  }

  static void Assign(View<float> rows, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i)
      std::memset(rows.at(i), 0, static_cast<std::size_t>(rows.extent(1)) * sizeof(float));
  }

  std::size_t Seen(std::size_t first, std::size_t count) const {
    return keys_ <= first ? 0 : std::min(count, keys_ - first);
  }

  /// S⁺ᵀ of the initial state.
  void LoadState(std::int64_t b) {
    const float* sums = call_.initial->sums(b, head_);
    for (std::size_t f = 0; f < features_; ++f)
      for (std::size_t m = 0; m < columns_; ++m) state_transposed_[m * ldf_ + f] = sums[f * columns_ + m];
    CopyRow(z_, call_.initial->normaliser(b, head_), features_);
    SetNormaliserRow();
  }

  void LoadKeys(std::size_t first, std::size_t count, std::size_t rows) {
    LoadFeatures(call_, false, head_, key_, first, count, k_, ldf_, rows);
    LoadRows(value_, first, count, columns_, v_, ldv_, rows);
    for (std::size_t j = 0; j < count; ++j) v_[j * ldv_ + columns_] = 1.0f;
  }

  /// G⁺, zeros from `count` to `rows`.
  void LoadGradient(std::size_t first, std::size_t count, std::size_t rows) {
    const F32 d;
    const std::size_t lanes = hn::Lanes(d);
    for (std::size_t i = 0; i < count; ++i) {
      const float *g = grad_out_.at(first + i), *o = out_.at(first + i);
      float* row = g_ + i * ldv_;
      if (!sees_keys_ || !call_.normalise) {
        CopyRow(row, g, columns_);
        continue;
      }
      const float scale = 1.0f / normaliser_[static_cast<std::int64_t>(first + i) * normaliser_step_];
      const Vec32 factor = hn::Set(d, scale);
      Vec32 sum = hn::Zero(d);
      std::size_t m = 0;
      for (; m + lanes <= columns_; m += lanes) {
        const Vec32 part = hn::Mul(hn::LoadU(d, g + m), factor);
        hn::Store(part, d, row + m);
        sum = hn::MulAdd(part, hn::LoadU(d, o + m), sum);
      }
      float dot = hn::GetLane(hn::SumOfLanes(d, sum));
      for (; m < columns_; ++m) {
        row[m] = g[m] * scale;
        dot += row[m] * o[m];
      }
      row[columns_] = -dot;
    }
    ZeroRows(g_, ldv_, count, rows);
  }

  /// weights = tril(G⁺ V⁺ᵀ).
  void MultiplyGradientByValues(std::size_t rows) {
    Transpose(v_transposed_, kChunk, v_, ldv_, rows, columns_ + 1);
    MultiplyLower{weights_, kChunk, g_, ldv_, v_transposed_, kChunk, rows, columns_ + 1}();
  }

  /// S⁺ᵀ += V⁺ᵀ φK.
  void AddKeysToState(std::size_t rows) {
    ForEachPanel(Multiply<Left::transposed, true>{state_transposed_, ldf_, v_, ldv_, k_, ldf_,
                                                  RoundUp(columns_, kRowBlock), rows},
                 ldf_);
    AddRows(z_, k_, ldf_, rows, ldf_);
    SetNormaliserRow();
  }

  /// R⁺ += φQᵀ G⁺.
  void AddQueriesToState(std::size_t rows) {
    ForEachPanel(Multiply<Left::transposed, true>{sums_, ldm_, q_, ldf_, g_, ldv_,
                                                  RoundUp(features_, kRowBlock), rows},
                 ldm_);
    AddWeightedRows(z_, q_, ldf_, g_ + columns_, ldv_, rows, ldf_);
  }

  void TransposeState() {
    Transpose(state_transposed_, ldf_, sums_, ldm_, features_, columns_);
    SetNormaliserRow();
  }

  void SetNormaliserRow() { std::memcpy(state_transposed_ + columns_ * ldf_, z_, ldf_ * sizeof(float)); }

  /// Rows of the gradient of x from `result_`, that of its features.
  void WriteThroughMap(View<float> gradient, View<const float> x, const float* features, std::size_t first,
                       std::size_t count, bool query) {
    const auto begin = static_cast<std::int64_t>(first), size = static_cast<std::int64_t>(count);
    const auto ld = static_cast<std::int64_t>(ldf_);
    call_.map.backward(
        gradient.slice(0, begin, begin + size), View<const float>(result_, {size, call_.features}, {ld, 1}),
        x.slice(0, begin, begin + size), View<const float>(features, {size, call_.features}, {ld, 1}),
        {call_.layer, static_cast<int>(head_), call_.position(query) + begin, query});
  }

  const LinearCall& call_;
  const std::int64_t head_;
  const std::size_t features_, columns_;  // F and M
  const std::size_t ldf_, ldm_, ldv_;     // padded leading dimensions of F, M and M + 1
  const std::size_t queries_, keys_;      // keys that are not padding
  const View<const float> query_, key_, value_, grad_out_, out_;
  const float* const normaliser_;
  const std::int64_t normaliser_step_;
  const bool sees_keys_;
  Scratch scratch_;
  float *q_, *k_;                  // φQ, φK [C, F]
  float *v_, *g_;                  // V⁺, G⁺ [C, M + 1]
  float* v_transposed_;            // V⁺ᵀ
  float* result_;                  // a gradient [C, F] or [C, M]
  float* weights_;                 // tril(G⁺ V⁺ᵀ)
  float* z_;                       // the last column of S⁺ or R⁺
  float* state_transposed_;        // S⁺ᵀ or R⁺ᵀ [M + 1, F]
  float* k_transposed_ = nullptr;  // φKᵀ
  float* sums_ = nullptr;          // R [F, M]
  float* more_weights_ = nullptr;  // tril(φQ φKᵀ)
};

void RunQueryGradient(const LinearGradientCall& call, View<float> grad_query, std::int64_t b,
                      std::int64_t h) {
  BackwardHead(call, b, h).QueryGradient(grad_query, b);
}

void RunKeyGradient(const LinearGradientCall& call, View<float> grad_key, View<float> grad_value,
                    std::int64_t b, std::int64_t h) {
  BackwardHead(call, b, h).KeyGradient(grad_key, grad_value, b);
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(RunQueryGradient);
HWY_EXPORT(RunKeyGradient);

void linear_query_gradient(const LinearGradientCall& call, View<float> grad_query, std::int64_t b,
                           std::int64_t h) {
  HWY_DYNAMIC_DISPATCH(RunQueryGradient)(call, grad_query, b, h);
}

void linear_key_gradient(const LinearGradientCall& call, View<float> grad_key, View<float> grad_value,
                         std::int64_t b, std::int64_t h) {
  HWY_DYNAMIC_DISPATCH(RunKeyGradient)(call, grad_key, grad_value, b, h);
}

}  // namespace linnet
#endif  // HWY_ONCE
