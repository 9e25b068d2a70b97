#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/linear/linear_backward.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/linear/linear_tiles-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// One sweep of the backward pass over a group of heads. With the normaliser as one more column of values, V⁺
/// = [V, 1], and G⁺ = [g/d, −(g·o)/d], the gradients are
///   dφQ_i = S⁺_i G⁺_i,  dφK_j = R⁺_j V⁺_j,  dV_j = R_jᵀ φK_j,  S⁺_i = Σ_{j≤i} φK_j V⁺_jᵀ,  R⁺_j = Σ_{i≥j}
///   φQ_i G⁺_iᵀ
/// (Katharopoulos et al. 2020, equations 13 to 15, with the normaliser's part), computed chunk by chunk: S⁺
/// is swept forwards for the queries, R⁺ from the end for the keys and values. Neither is stored along the
/// sequence.
class BackwardSweep {
 public:
  BackwardSweep(const LinearGradientCall& call, const LinearHeads& heads, bool of_keys)
      : gradient_call_(call),
        call_(call.forward),
        group_(heads),
        heads_(static_cast<std::size_t>(heads.last_head - heads.first_head)),
        features_(static_cast<std::size_t>(call_.features)),
        columns_(static_cast<std::size_t>(call_.sizes.value_dim)),
        ldf_(RoundUp(features_, kPad)),
        ldm_(RoundUp(columns_, kPad)),
        ldv_(RoundUp(columns_ + 1, kPad)),
        lde_(RoundUp(static_cast<std::size_t>(call_.sizes.head_dim), kPad)),
        queries_(static_cast<std::size_t>(call_.sizes.queries)),
        keys_(static_cast<std::size_t>(call_.visible_keys(heads.batch))),
        state_floats_(ldv_ * ldf_ + ldf_ + (of_keys ? ldf_ * ldm_ : 0)),
        scratch_(4 * kChunk * (ldf_ + ldv_) + 2 * kChunk * kChunk + kChunk * lde_ + heads_ * state_floats_),
        q_(zeroed(kChunk * ldf_)),
        k_(zeroed(kChunk * ldf_)),
        k_transposed_(zeroed(kChunk * ldf_)),
        v_(zeroed(kChunk * ldv_)),
        v_transposed_(zeroed(kChunk * ldv_)),
        g_(zeroed(kChunk * ldv_)),
        result_(zeroed(kChunk * std::max(ldf_, ldv_))),
        value_weights_(zeroed(kChunk * kChunk)),
        key_weights_(zeroed(kChunk * kChunk)),
        input_gradient_(zeroed(kChunk * lde_)),
        states_(zeroed(heads_ * state_floats_)) {}

  void QueryGradient(View<float> grad_query) {
    const bool causal = call_.causal(), seeing = call_.sees_keys(group_.batch);
    if (call_.initial != nullptr) LoadStates();
    if (!causal) {
      for (std::size_t first = 0; first < keys_; first += kChunk) {
        for (std::size_t head = 0; head < heads_; ++head) {
          SelectHead(head);
          Fetch(first, kForwards, keys_,
                {call_.inputs.key.as<const float>(), call_.inputs.value.as<const float>()},
                Fetches(call_, 0, 0, 1));
          const std::size_t count = std::min(kChunk, keys_ - first);
          LoadKeys(first, count, count);
          AddKeysToState(count);
        }
      }
    }
    for (std::size_t first = 0; first < queries_; first += kChunk) {
      for (std::size_t head = 0; head < heads_; ++head) {
        SelectHead(head);
        const std::size_t count = std::min(kChunk, queries_ - first), rows = RoundUp(count, kRowBlock);
        if (!seeing) {
          Clear(grad_query, first, first + count);
          continue;
        }
        if (causal) {
          Fetch(first, kForwards, queries_,
                {call_.inputs.query.as<const float>(), gradient_call_.grad_out, gradient_call_.out,
                 call_.inputs.key.as<const float>(), call_.inputs.value.as<const float>()},
                Fetches(call_, 1, 1, 1));
        } else {
          Fetch(first, kForwards, queries_,
                {call_.inputs.query.as<const float>(), gradient_call_.grad_out, gradient_call_.out},
                Fetches(call_, 0, 1, 0));
        }
        LoadQueries(first, count, rows);
        if (causal) {
          const std::size_t seen = Seen(first, count);
          LoadKeys(first, seen, rows);
          WeighValues(rows);
          ForEachPanel(
              MultiplyWithTriangle<false>{result_, ldf_, g_, ldv_, state_transposed_, ldf_, value_weights_,
                                          kChunk, k_, ldf_, rows, columns_ + 1, &ahead_},
              ldf_);
          if (seen > 0 && first + count < queries_) AddKeysToState(seen);
        } else {
          Multiply<Left::plain, false> product{result_, ldf_, g_,           ldv_,   state_transposed_,
                                               ldf_,    rows, columns_ + 1, &ahead_};
          ForEachPanel(product, ldf_);
        }
        WriteThroughMap(grad_query, query_, q_, first, count, true);
      }
    }
  }

  void KeyGradient(View<float> grad_key, View<float> grad_value) {
    const bool causal = call_.causal();
    for (std::size_t head = 0; head < heads_; ++head) {
      SelectHead(head);
      Clear(grad_key, keys_, static_cast<std::size_t>(call_.sizes.keys));
      Clear(grad_value, keys_, static_cast<std::size_t>(call_.sizes.keys));
    }
    if (keys_ == 0) return;
    if (!causal) {
      for (std::size_t first = 0; first < queries_; first += kChunk) {
        for (std::size_t head = 0; head < heads_; ++head) {
          SelectHead(head);
          Fetch(first, kForwards, queries_,
                {call_.inputs.query.as<const float>(), gradient_call_.grad_out, gradient_call_.out},
                Fetches(call_, 0, 0, 1));
          const std::size_t count = std::min(kChunk, queries_ - first);
          LoadQueries(first, count, count);
          AddQueriesToState(count);
        }
      }
      for (std::size_t head = 0; head < heads_; ++head) {
        SelectHead(head);
        TransposeState();
      }
    }
    const std::size_t length = causal ? queries_ : keys_;
    for (std::size_t first = RoundUp(length, kChunk); first > 0;) {
      first -= kChunk;
      for (std::size_t head = 0; head < heads_; ++head) {
        SelectHead(head);
        if (causal) {
          Fetch(first, kBackwards, length,
                {call_.inputs.query.as<const float>(), gradient_call_.grad_out, gradient_call_.out,
                 call_.inputs.key.as<const float>(), call_.inputs.value.as<const float>()},
                Fetches(call_, 2, 2, 1));
        } else {
          Fetch(first, kBackwards, length,
                {call_.inputs.key.as<const float>(), call_.inputs.value.as<const float>()},
                Fetches(call_, 0, 2, 0));
        }
        KeyChunk(grad_key, grad_value, first, std::min(kChunk, length - first));
      }
    }
  }

 private:
  static constexpr int kForwards = 1, kBackwards = -1;

  float* zeroed(std::size_t floats) {
    float* memory = scratch_.take(floats);
    std::memset(memory, 0, floats * sizeof(float));
    return memory;
  }

  void Clear(const View<float>& gradient, std::size_t first, std::size_t last) const {
    const Rows<float> rows = RowsOf(gradient, group_.batch, head_);
    for (std::size_t i = first; i < last; ++i)
      std::memset(rows.at(i), 0, static_cast<std::size_t>(gradient.extent(3)) * sizeof(float));
  }

  void SelectHead(std::size_t head) {
    head_ = group_.first_head + static_cast<std::int64_t>(head);
    query_ = RowsOf(call_.inputs.query.as<const float>(), group_.batch, head_);
    key_ = RowsOf(call_.inputs.key.as<const float>(), group_.batch, head_);
    value_ = RowsOf(call_.inputs.value.as<const float>(), group_.batch, head_);
    grad_out_ = RowsOf(gradient_call_.grad_out, group_.batch, head_);
    out_ = RowsOf(gradient_call_.out, group_.batch, head_);
    state_transposed_ = states_ + head * state_floats_;
    z_ = state_transposed_ + ldv_ * ldf_;
    sums_ = z_ + ldf_;
  }

  /// Keys of the chunk that are not padding.
  std::size_t Seen(std::size_t first, std::size_t count) const {
    return keys_ <= first ? 0 : std::min(count, keys_ - first);
  }

  /// Has the products of this chunk fetch the rows of the next one: the next head's, or the first head's of
  /// the chunk that follows.
  void Fetch(std::size_t first, int direction, std::size_t length,
             std::initializer_list<View<const float>> tensors, std::size_t fetches) {
    std::int64_t h = head_ + 1;
    std::size_t next = first;
    if (h == group_.last_head) {
      h = group_.first_head;
      if (direction == kBackwards && first == 0) return ahead_.Start(1);
      next = direction == kForwards ? first + kChunk : first - kChunk;
    }
    if (next >= length) return ahead_.Start(1);
    const std::size_t rows = std::min(kChunk, length - next);
    ahead_.Start(fetches);
    for (const View<const float>& tensor : tensors)
      ahead_.Add(RowsOf(tensor, group_.batch, h).at(next), tensor.stride(1), rows,
                 static_cast<std::size_t>(tensor.extent(3)));
  }

  /// S⁺ᵀ of the initial state.
  void LoadStates() {
    for (std::size_t head = 0; head < heads_; ++head) {
      SelectHead(head);
      const float* sums = call_.initial->sums(group_.batch, head_);
      for (std::size_t f = 0; f < features_; ++f)
        for (std::size_t m = 0; m < columns_; ++m) state_transposed_[m * ldf_ + f] = sums[f * columns_ + m];
      CopyRow(z_, call_.initial->normaliser(group_.batch, head_), features_);
      SetNormaliserRow();
    }
  }

  /// φK and V⁺, zeros from `count` to `rows`.
  void LoadKeys(std::size_t first, std::size_t count, std::size_t rows) {
    LoadFeatures(call_, false, head_, key_, first, count, k_, ldf_, rows);
    LoadRows(value_, first, count, columns_, v_, ldv_, rows);
    for (std::size_t j = 0; j < count; ++j) v_[j * ldv_ + columns_] = 1.0f;
  }

  /// φQ and G⁺, zeros from `count` to `rows`.
  void LoadQueries(std::size_t first, std::size_t count, std::size_t rows) {
    const F32 d;
    const std::size_t lanes = hn::Lanes(d);
    LoadFeatures(call_, true, head_, query_, first, count, q_, ldf_, rows);
    const float* normaliser = gradient_call_.normaliser.at(group_.batch, first, head_);
    for (std::size_t i = 0; i < count; ++i) {
      const float *g = grad_out_.at(first + i), *o = out_.at(first + i);
      float* row = g_ + i * ldv_;
      if (!call_.normalise) {
        CopyRow(row, g, columns_);
        continue;
      }
      const float scale =
          1.0f / normaliser[static_cast<std::int64_t>(i) * gradient_call_.normaliser.stride(1)];
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

  void KeyChunk(View<float> grad_key, View<float> grad_value, std::size_t first, std::size_t count) {
    const bool causal = call_.causal();
    const std::size_t rows = RoundUp(count, kRowBlock), seen = Seen(first, count);
    if (causal) LoadQueries(first, count, rows);
    if (seen > 0) {
      LoadKeys(first, seen, rows);
      if (causal) {
        WeighValues(rows);
        WeighKeys(rows);
        ForEachPanel(
            MultiplyWithTriangle<true>{result_, ldf_, v_, ldv_, state_transposed_, ldf_, value_weights_,
                                       kChunk, q_, ldf_, rows, columns_ + 1, &ahead_},
            ldf_);
      } else {
        ForEachPanel(Multiply<Left::plain, false>{result_, ldf_, v_, ldv_, state_transposed_, ldf_, rows,
                                                  columns_ + 1, &ahead_},
                     ldf_);
      }
      WriteThroughMap(grad_key, key_, k_, first, seen, false);
      if (causal) {
        ForEachPanel(MultiplyWithTriangle<true>{result_, ldm_, k_, ldf_, sums_, ldm_, key_weights_, kChunk,
                                                g_, ldv_, rows, features_, &ahead_},
                     ldm_);
      } else {
        ForEachPanel(
            Multiply<Left::plain, false>{result_, ldm_, k_, ldf_, sums_, ldm_, rows, features_, &ahead_},
            ldm_);
      }
      WriteRows(grad_value, result_, ldm_, first, seen);
    }
    if (causal && first > 0) {
      AddQueriesToState(count);
      TransposeState();
    }
  }

  /// tril(G⁺ V⁺ᵀ).
  void WeighValues(std::size_t rows) {
    Transpose(v_transposed_, kChunk, v_, ldv_, rows, columns_ + 1);
    MultiplyLower{value_weights_, kChunk, g_, ldv_, v_transposed_, kChunk, rows, columns_ + 1, &ahead_}();
  }

  /// tril(φQ φKᵀ).
  void WeighKeys(std::size_t rows) {
    Transpose(k_transposed_, kChunk, k_, ldf_, rows, features_);
    MultiplyLower{key_weights_, kChunk, q_, ldf_, k_transposed_, kChunk, rows, features_, &ahead_}();
  }

  /// S⁺ᵀ += V⁺ᵀ φK.
  void AddKeysToState(std::size_t rows) {
    ForEachPanel(Multiply<Left::transposed, true>{state_transposed_, ldf_, v_, ldv_, k_, ldf_,
                                                  RoundUp(columns_, kRowBlock), rows, &ahead_},
                 ldf_);
    AddRows(z_, k_, ldf_, rows, ldf_);
    SetNormaliserRow();
  }

  /// R⁺ += φQᵀ G⁺.
  void AddQueriesToState(std::size_t rows) {
    ForEachPanel(Multiply<Left::transposed, true>{sums_, ldm_, q_, ldf_, g_, ldv_,
                                                  RoundUp(features_, kRowBlock), rows, &ahead_},
                 ldm_);
    AddWeightedRows(z_, q_, ldf_, g_ + columns_, ldv_, rows, ldf_);
  }

  void TransposeState() {
    Transpose(state_transposed_, ldf_, sums_, ldm_, features_, columns_);
    SetNormaliserRow();
  }

  void SetNormaliserRow() { std::memcpy(state_transposed_ + columns_ * ldf_, z_, ldf_ * sizeof(float)); }

  /// Rows of the gradient of x from `result_`, that of its features.
  void WriteThroughMap(const View<float>& gradient, Rows<const float> x, float* features, std::size_t first,
                       std::size_t count, bool query) {
    const auto tile = [&](float* data, std::int64_t columns, std::size_t ld) {
      return Rows<float>{data, static_cast<std::int64_t>(ld)}.Tile(0, count, columns);
    };
    call_.map.backward(tile(input_gradient_, call_.sizes.head_dim, lde_), tile(result_, call_.features, ldf_),
                       x.Tile(first, count, call_.sizes.head_dim), tile(features, call_.features, ldf_),
                       {call_.layer, static_cast<int>(head_),
                        call_.position(query) + static_cast<std::int64_t>(first), query});
    WriteRows(gradient, input_gradient_, lde_, first, count);
  }

  void WriteRows(const View<float>& gradient, const float* tile, std::size_t ld, std::size_t first,
                 std::size_t count) {
    const Rows<float> rows = RowsOf(gradient, group_.batch, head_);
    const bool stream = CanStream(gradient);
    for (std::size_t i = 0; i < count; ++i)
      CopyRow(rows.at(first + i), tile + i * ld, static_cast<std::size_t>(gradient.extent(3)), 1.0f, stream);
  }

  const LinearGradientCall& gradient_call_;
  const LinearCall& call_;
  const LinearHeads group_;
  const std::size_t heads_, features_, columns_;  // heads of this task, F and M
  const std::size_t ldf_, ldm_, ldv_, lde_;       // padded leading dimensions of F, M, M + 1 and E
  const std::size_t queries_, keys_;              // keys that are not padding
  const std::size_t state_floats_;                // of a head
  Ahead ahead_;
  Scratch scratch_;
  float *q_, *k_, *k_transposed_;  // φQ, φK [C, F] and φKᵀ
  float *v_, *v_transposed_, *g_;  // V⁺ [C, M + 1], V⁺ᵀ and G⁺
  float* result_;                  // a gradient [C, F] or [C, M]
  float* value_weights_;           // tril(G⁺ V⁺ᵀ)
  float* key_weights_;             // tril(φQ φKᵀ)
  float* input_gradient_;          // of queries or keys, [C, E]
  float* states_;                  // of every head

  // The head at work.
  std::int64_t head_ = 0;
  Rows<const float> query_, key_, value_, grad_out_, out_;
  float* state_transposed_ = nullptr;  // S⁺ᵀ or R⁺ᵀ [M + 1, F]
  float* z_ = nullptr;                 // the last column of S⁺ or R⁺
  float* sums_ = nullptr;              // R [F, M]
};

void RunQueryGradient(const LinearGradientCall& call, View<float> grad_query, const LinearHeads& heads) {
  BackwardSweep(call, heads, false).QueryGradient(grad_query);
  hwy::FlushStream();
}

void RunKeyGradient(const LinearGradientCall& call, View<float> grad_key, View<float> grad_value,
                    const LinearHeads& heads) {
  BackwardSweep(call, heads, true).KeyGradient(grad_key, grad_value);
  hwy::FlushStream();
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(RunQueryGradient);
HWY_EXPORT(RunKeyGradient);

void linear_query_gradient(const LinearGradientCall& call, View<float> grad_query, const LinearHeads& heads) {
  HWY_DYNAMIC_DISPATCH(RunQueryGradient)(call, grad_query, heads);
}

void linear_key_gradient(const LinearGradientCall& call, View<float> grad_key, View<float> grad_value,
                         const LinearHeads& heads) {
  HWY_DYNAMIC_DISPATCH(RunKeyGradient)(call, grad_key, grad_value, heads);
}

}  // namespace linnet
#endif  // HWY_ONCE
