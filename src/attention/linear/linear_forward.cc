#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/linear/linear_forward.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/linear/linear_tiles-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// The forward pass of a group of heads and a block of value columns, chunk by chunk (Katharopoulos et al.
/// 2020, equations 8 to 12):
///   P = tril(φQ φKᵀ),  O = φQ S + P V,  d = φQ z + rowsum(P) + ε,  then S += φKᵀ V,  z += colsum(φK).
class ForwardBlock {
 public:
  ForwardBlock(const LinearCall& call, const AttentionOutputs& outputs, const LinearBlock& block)
      : call_(call),
        outputs_(outputs),
        block_(block),
        heads_(static_cast<std::size_t>(block.last_head - block.first_head)),
        features_(static_cast<std::size_t>(call.features)),
        columns_(static_cast<std::size_t>(block.last_column - block.first_column)),
        ldf_(RoundUp(features_, kPad)),
        ldm_(RoundUp(columns_, kPad)),
        queries_(static_cast<std::size_t>(call.sizes.queries)),
        keys_(static_cast<std::size_t>(call.visible_keys(block.batch))),
        scratch_(3 * kChunk * ldf_ + 2 * kChunk * ldm_ + kChunk * kChunk + heads_ * ldf_ * (ldm_ + 1)),
        q_(zeroed(kChunk * ldf_)),
        k_(zeroed(kChunk * ldf_)),
        k_transposed_(zeroed(ldf_ * kChunk)),
        v_(zeroed(kChunk * ldm_)),
        o_(zeroed(kChunk * ldm_)),
        p_(zeroed(kChunk * kChunk)),
        states_(zeroed(heads_ * ldf_ * (ldm_ + 1))) {
    const std::int64_t lanes = hn::Lanes(F32());
    stream_ = CanStream(outputs.out.as<float>()) && block.first_column % lanes == 0 &&
              block.last_column % lanes == 0;
  }

  void Run(LinearState* final, float* final_z) {
    keep_last_ = final != nullptr;
    if (call_.initial != nullptr) LoadStates();
    if (!call_.causal()) {
      for (std::size_t first = 0; first < keys_; first += kChunk) {
        for (std::size_t head = 0; head < heads_; ++head) {
          const std::size_t count = std::min(kChunk, keys_ - first);
          SelectHead(head);
          FetchNext(first, head, keys_, false, true);
          LoadKeys(first, count, count);
          AddToState(count);
        }
      }
    }
    for (std::size_t first = 0; first < queries_; first += kChunk) {
      for (std::size_t head = 0; head < heads_; ++head) {
        SelectHead(head);
        FetchNext(first, head, queries_, true, call_.causal());
        Chunk(first, std::min(kChunk, queries_ - first));
      }
    }
    if (stream_) hwy::FlushStream();
    if (final != nullptr) StoreStates(*final, final_z);
  }

 private:
  float* zeroed(std::size_t floats) {
    float* memory = scratch_.take(floats);
    std::memset(memory, 0, floats * sizeof(float));
    return memory;
  }

  void SelectHead(std::size_t head) {
    head_ = block_.first_head + static_cast<std::int64_t>(head);
    query_ = RowsOf(call_.inputs.query.as<const float>(), block_.batch, head_);
    key_ = RowsOf(call_.inputs.key.as<const float>(), block_.batch, head_);
    value_ = RowsOf(call_.inputs.value.as<const float>(), block_.batch, head_, block_.first_column);
    out_ = RowsOf(outputs_.out.as<float>(), block_.batch, head_, block_.first_column);
    sums_ = states_ + head * ldf_ * (ldm_ + 1);
    z_ = sums_ + ldf_ * ldm_;
  }

  void LoadStates() {
    for (std::size_t head = 0; head < heads_; ++head) {
      SelectHead(head);
      const float* sums = call_.initial->sums(block_.batch, head_) + block_.first_column;
      for (std::size_t f = 0; f < features_; ++f)
        CopyRow(sums_ + f * ldm_, sums + f * call_.sizes.value_dim, columns_);
      CopyRow(z_, call_.initial->normaliser(block_.batch, head_), features_);
    }
  }

  void StoreStates(LinearState& final, float* final_z) {
    for (std::size_t head = 0; head < heads_; ++head) {
      SelectHead(head);
      float* sums = final.sums(block_.batch, head_) + block_.first_column;
      for (std::size_t f = 0; f < features_; ++f)
        CopyRow(sums + f * call_.sizes.value_dim, sums_ + f * ldm_, columns_);
      if (block_.first_column == 0)
        CopyRow(final_z + (block_.batch * call_.sizes.heads + head_) * call_.features, z_, features_);
    }
  }

  /// Has the products of this chunk fetch the rows of the next one: the next head's, or the first head's
  /// further on.
  void FetchNext(std::size_t first, std::size_t head, std::size_t length, bool queries, bool keys) {
    const std::size_t next = head + 1 < heads_ ? first : first + kChunk;
    if (next >= length) return ahead_.Start(1);
    const std::int64_t h = head + 1 < heads_ ? head_ + 1 : block_.first_head;
    const std::size_t rows = std::min(kChunk, length - next);
    ahead_.Start(Fetches(call_, queries && keys, queries, keys));
    const auto add = [&](const View<const float>& tensor, std::int64_t first_column, std::int64_t columns) {
      ahead_.Add(RowsOf(tensor, block_.batch, h, first_column).at(next), tensor.stride(1), rows,
                 static_cast<std::size_t>(columns));
    };
    if (queries) add(call_.inputs.query.as<const float>(), 0, call_.sizes.head_dim);
    if (keys) {
      add(call_.inputs.key.as<const float>(), 0, call_.sizes.head_dim);
      add(call_.inputs.value.as<const float>(), block_.first_column,
          block_.last_column - block_.first_column);
    }
  }

  void LoadKeys(std::size_t first, std::size_t count, std::size_t rows) {
    LoadFeatures(call_, false, head_, key_, first, count, k_, ldf_, rows);
    LoadRows(value_, first, count, columns_, v_, ldm_, rows);
  }

  void AddToState(std::size_t rows) {
    ForEachPanel(Multiply<Left::transposed, true>{sums_, ldm_, k_, ldf_, v_, ldm_,
                                                  RoundUp(features_, kRowBlock), rows, &ahead_},
                 ldm_);
    AddRows(z_, k_, ldf_, rows, ldf_);
  }

  void Chunk(std::size_t first, std::size_t count) {
    if (!call_.sees_keys(block_.batch)) return WriteZeros(first, count);
    const std::size_t rows = RoundUp(count, kRowBlock);
    LoadFeatures(call_, true, head_, query_, first, count, q_, ldf_, rows);
    if (!call_.causal()) {
      ForEachPanel(Multiply<Left::plain, false>{o_, ldm_, q_, ldf_, sums_, ldm_, rows, features_, &ahead_},
                   ldm_);
      return WriteRows<false>(first, count);
    }
    const std::size_t seen = keys_ <= first ? 0 : std::min(count, keys_ - first);
    LoadKeys(first, seen, rows);
    Transpose(k_transposed_, kChunk, k_, ldf_, rows, features_);
    MultiplyLower{p_, kChunk, q_, ldf_, k_transposed_, kChunk, rows, features_, &ahead_}();
    ForEachPanel(MultiplyWithTriangle<false>{o_, ldm_, q_, ldf_, sums_, ldm_, p_, kChunk, v_, ldm_, rows,
                                             features_, &ahead_},
                 ldm_);
    WriteRows<true>(first, count);
    if (seen > 0 && (first + count < queries_ || keep_last_)) AddToState(seen);
  }

  /// d of row i of the chunk.
  template <bool kWithinChunk>
  HWY_INLINE float Denominator(std::size_t i) const {
    const F32 d;
    const std::size_t lanes = hn::Lanes(d);
    Vec32 sum = hn::Zero(d);
    for (std::size_t f = 0; f < ldf_; f += lanes)
      sum = hn::MulAdd(hn::Load(d, q_ + i * ldf_ + f), hn::Load(d, z_ + f), sum);
    if constexpr (kWithinChunk) {
      const float* row = p_ + i * kChunk;
      std::size_t j = 0;
      for (; j + lanes <= i + 1; j += lanes) sum = hn::Add(sum, hn::Load(d, row + j));
      if (j < i + 1) sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, i + 1 - j), hn::Load(d, row + j)));
    }
    return hn::GetLane(hn::SumOfLanes(d, sum)) + call_.epsilon;
  }

  /// out = O / d, and d where it is wanted.
  template <bool kWithinChunk>
  void WriteRows(std::size_t first, std::size_t count) {
    float* normaliser = Normaliser(first);
    for (std::size_t i = 0; i < count; ++i) {
      const float denominator = call_.normalise ? Denominator<kWithinChunk>(i) : 1.0f;
      CopyRow(out_.at(first + i), o_ + i * ldm_, columns_, 1.0f / denominator, stream_);
      if (normaliser != nullptr)
        normaliser[static_cast<std::int64_t>(i) * outputs_.normaliser.stride(1)] = denominator;
    }
  }

  void WriteZeros(std::size_t first, std::size_t count) {
    float* normaliser = Normaliser(first);
    for (std::size_t i = 0; i < count; ++i) {
      std::memset(out_.at(first + i), 0, columns_ * sizeof(float));
      if (normaliser != nullptr)
        normaliser[static_cast<std::int64_t>(i) * outputs_.normaliser.stride(1)] = 1.0f;
    }
  }

  float* Normaliser(std::size_t row) const {
    const bool wanted = block_.first_column == 0 && outputs_.normaliser.rank() != 0;
    return wanted ? outputs_.normaliser.at(block_.batch, row, head_) : nullptr;
  }

  const LinearCall& call_;
  const AttentionOutputs& outputs_;
  const LinearBlock block_;
  const std::size_t heads_, features_, columns_;  // of this block: heads, F, M
  const std::size_t ldf_, ldm_;                   // padded leading dimensions of F and M
  const std::size_t queries_, keys_;              // keys that are not padding
  bool stream_, keep_last_ = false;
  Ahead ahead_;
  Scratch scratch_;
  float *q_, *k_, *k_transposed_;  // φQ, φK [C, F] and φKᵀ
  float *v_, *o_, *p_;             // V, O [C, M] and P [C, C]
  float* states_;                  // S [F, M] and z [F] of every head

  // The head at work.
  std::int64_t head_ = 0;
  Rows<const float> query_, key_, value_;
  Rows<float> out_;
  float *sums_ = nullptr, *z_ = nullptr;
};

void RunForwardBlock(const LinearCall& call, const AttentionOutputs& outputs, const LinearBlock& block,
                     LinearState* final, float* final_z) {
  ForwardBlock(call, outputs, block).Run(final, final_z);
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(RunForwardBlock);

void linear_forward_block(const LinearCall& call, const AttentionOutputs& outputs, const LinearBlock& block,
                          LinearState* final, float* final_z) {
  HWY_DYNAMIC_DISPATCH(RunForwardBlock)(call, outputs, block, final, final_z);
}

}  // namespace linnet
#endif  // HWY_ONCE
