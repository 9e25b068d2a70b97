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

/// The forward pass of one head and block of value columns, chunk by chunk (Katharopoulos et al. 2020,
/// equations 8 to 12):
///   P = tril(φQ φKᵀ),  O = φQ S + P V,  d = φQ z + rowsum(P) + ε,  then S += φKᵀ V,  z += colsum(φK).
class ForwardBlock {
 public:
  ForwardBlock(const LinearCall& call, const AttentionOutputs& outputs, const LinearBlock& block)
      : call_(call),
        block_(block),
        features_(static_cast<std::size_t>(call.features)),
        columns_(static_cast<std::size_t>(block.last_column - block.first_column)),
        ldf_(RoundUp(features_, kPad)),
        ldm_(RoundUp(columns_, kPad)),
        query_(RowsOf(call.inputs.query, block.batch, block.head)),
        key_(RowsOf(call.inputs.key, block.batch, block.head)),
        value_(columns_of(RowsOf(call.inputs.value, block.batch, block.head))),
        out_(columns_of(RowsOf(outputs.out, block.batch, block.head))),
        normaliser_(block.first_column == 0 && outputs.normaliser.rank() != 0
                        ? outputs.normaliser.at(block.batch, 0, block.head)
                        : nullptr),
        normaliser_step_(outputs.normaliser.rank() != 0 ? outputs.normaliser.stride(1) : 0),
        scratch_((3 * kChunk + ldm_) * ldf_ + 2 * kChunk * ldm_ + kChunk * kChunk + ldf_),
        q_(zeroed(kChunk * ldf_)),
        k_(zeroed(kChunk * ldf_)),
        k_transposed_(zeroed(ldf_ * kChunk)),
        v_(zeroed(kChunk * ldm_)),
        o_(zeroed(kChunk * ldm_)),
        p_(zeroed(kChunk * kChunk)),
        sums_(zeroed(ldf_ * ldm_)),
        z_(zeroed(ldf_)) {
    const F32 d;
    const auto bytes = static_cast<std::size_t>(out_.stride(0)) * sizeof(float);
    const std::size_t vector = hn::Lanes(d) * sizeof(float);
    // Stores past the caches pay where `out` is larger than they are.
    stream_ = outputs.out.size() >= (std::int64_t{1} << 20) && columns_ % hn::Lanes(d) == 0 &&
              bytes % vector == 0 && reinterpret_cast<std::uintptr_t>(out_.data()) % vector == 0;
  }

  void Run(float* final_sums, float* final_z) {
    if (call_.initial != nullptr) LoadState();
    const auto queries = static_cast<std::size_t>(call_.sizes.queries);
    const auto keys = static_cast<std::size_t>(call_.visible_keys(block_.batch));
    if (!call_.causal()) {
      for (std::size_t first = 0; first < keys; first += kChunk) {
        const std::size_t count = std::min(kChunk, keys - first);
        LoadKeys(first, count, count);
        AddToState(count);
      }
    }
    const bool sees_keys = call_.sees_keys(block_.batch);
    for (std::size_t first = 0; first < queries; first += kChunk) {
      const std::size_t count = std::min(kChunk, queries - first);
      if (!sees_keys) {
        WriteZeros(first, count);
        continue;
      }
      const std::size_t rows = RoundUp(count, kRowBlock);
      LoadFeatures(call_, true, block_.head, query_, first, count, q_, ldf_, rows);
      PrefetchRows(query_, first + kChunk, kChunk);
      if (call_.causal()) {
        const std::size_t seen = keys <= first ? 0 : std::min(count, keys - first);
        LoadKeys(first, seen, rows);
        Transpose(k_transposed_, kChunk, k_, ldf_, rows, features_);
        MultiplyLower{p_, kChunk, q_, ldf_, k_transposed_, kChunk, rows, features_}();
        ForEachPanel(MultiplyWithTriangle<false>{o_, ldm_, q_, ldf_, sums_, ldm_, p_, kChunk, v_, ldm_, rows,
                                                 features_},
                     ldm_);
        WriteRows<true>(first, count);
        if (seen > 0 && (first + count < queries || final_sums != nullptr)) AddToState(seen);
      } else {
        ForEachPanel(Multiply<Left::plain, false>{o_, ldm_, q_, ldf_, sums_, ldm_, rows, features_}, ldm_);
        WriteRows<false>(first, count);
      }
    }
    if (stream_) hwy::FlushStream();
    if (final_sums != nullptr) {
      for (std::size_t f = 0; f < features_; ++f)
        CopyRow(final_sums + f * call_.sizes.value_dim + block_.first_column, sums_ + f * ldm_, columns_);
      if (block_.first_column == 0) CopyRow(final_z, z_, features_);
    }
  }

 private:
  template <class T>
  View<T> columns_of(View<T> rows) const {
    return rows.slice(1, block_.first_column, block_.last_column);
  }

  float* zeroed(std::size_t floats) {
    float* memory = scratch_.take(floats);
    std::memset(memory, 0, floats * sizeof(float));
    return memory;
  }

  void LoadState() {
    const float* sums = call_.initial->sums(block_.batch, block_.head) + block_.first_column;
    for (std::size_t f = 0; f < features_; ++f)
      CopyRow(sums_ + f * ldm_, sums + f * call_.sizes.value_dim, columns_);
    CopyRow(z_, call_.initial->normaliser(block_.batch, block_.head), features_);
  }

  void LoadKeys(std::size_t first, std::size_t count, std::size_t rows) {
    LoadFeatures(call_, false, block_.head, key_, first, count, k_, ldf_, rows);
    LoadRows(value_, first, count, columns_, v_, ldm_, rows);
    PrefetchRows(key_, first + kChunk, kChunk);
    PrefetchRows(value_, first + kChunk, kChunk);
  }

  void AddToState(std::size_t rows) {
    ForEachPanel(Multiply<Left::transposed, true>{sums_, ldm_, k_, ldf_, v_, ldm_,
                                                  RoundUp(features_, kRowBlock), rows},
                 ldm_);
    AddRows(z_, k_, ldf_, rows, ldf_);
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

  template <bool kWithinChunk>
  void WriteRows(std::size_t first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const float denominator = call_.normalise ? Denominator<kWithinChunk>(i) : 1.0f;
      CopyRow(out_.at(first + i), o_ + i * ldm_, columns_, 1.0f / denominator, stream_);
      if (normaliser_ != nullptr) normaliser_[(first + i) * normaliser_step_] = denominator;
    }
  }

  void WriteZeros(std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      std::memset(out_.at(i), 0, columns_ * sizeof(float));
      if (normaliser_ != nullptr) normaliser_[i * normaliser_step_] = 1.0f;
    }
  }

  const LinearCall& call_;
  const LinearBlock block_;
  const std::size_t features_, columns_;  // F, and M of this block
  const std::size_t ldf_, ldm_;           // their padded leading dimensions
  const View<const float> query_, key_, value_;
  const View<float> out_;
  float* const normaliser_;
  const std::int64_t normaliser_step_;
  bool stream_;
  Scratch scratch_;
  float *q_, *k_, *k_transposed_;  // φQ, φK [C, F] and φKᵀ
  float *v_, *o_, *p_;             // V, O [C, M] and P [C, C]
  float *sums_, *z_;               // S [F, M] and z [F]
};

void RunForwardBlock(const LinearCall& call, const AttentionOutputs& outputs, const LinearBlock& block,
                     float* final_sums, float* final_z) {
  ForwardBlock(call, outputs, block).Run(final_sums, final_z);
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(RunForwardBlock);

void linear_forward_block(const LinearCall& call, const AttentionOutputs& outputs, const LinearBlock& block,
                          float* final_sums, float* final_z) {
  HWY_DYNAMIC_DISPATCH(RunForwardBlock)(call, outputs, block, final_sums, final_z);
}

}  // namespace linnet
#endif  // HWY_ONCE
