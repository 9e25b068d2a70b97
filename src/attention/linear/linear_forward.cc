#include <atomic>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/linear/linear_forward.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/linear/sweep-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// The forward pass of a group of heads and a block of value columns, chunk by chunk (Katharopoulos et al.
/// 2020, equations 8 to 12). With S and z summed up over the keys that all rows of the chunk see, and P = φQ
/// φKᵀ where a query sees a key of an edge, 0 elsewhere:
///   O = φQ S + P V,  d = φQ z + rowsum(P) + ε;  and S += φKᵀ V,  z += colsum(φK) for the keys that enter.
/// With log-scales s of the keys, row i's O and d are those of the features times e^(s − m_i), m_i the
/// largest s that i sees.
class ForwardSweep : public Sweep<ForwardSweep> {
 public:
  ForwardSweep(Context& own, const LinearCall& call, const AttentionOutputs& outputs,
               const LinearBlock& block)
      : Sweep(own, call, SweepSide::queries, block),
        outputs_(outputs),
        features_(static_cast<std::size_t>(call.features)),
        columns_(static_cast<std::size_t>(block.last_column - block.first_column)),
        width_(round_up(features_, kPad)),
        value_width_(round_up(columns_, kPad)),
        ldf_(tile_stride(features_)),
        ldm_(tile_stride(columns_)),
        workspace_(own),
        q_(workspace_.take_zeroed(chunk_ * ldf_)),
        faded_(workspace_.take_zeroed(chunk_ * ldf_)),
        k_(workspace_.take_zeroed(chunk_ * ldf_)),
        k_transposed_(workspace_.take_zeroed(width_ * chunk_)),
        v_(workspace_.take_zeroed(chunk_ * ldm_)),
        o_(workspace_.take_zeroed(chunk_ * ldm_)),
        p_(workspace_.take_zeroed(chunk_ * chunk_)),
        wide_(workspace_.take_zeroed(chunk_ * static_cast<std::size_t>(call.sizes.head_dim))),
        power_(workspace_.take_zeroed(chunk_)),
        denominators_(workspace_.take_zeroed(chunk_)),
        query_scale_(scales_.query.size()),
        highest_(scales_.query.size()) {
    take_pieces(width_ * ldm_ + width_, workspace_);
  }

  void run(LinearState* final, const FinalKeySums& key_sums) {
    compensated_ = compensated_ || (final != nullptr && final->parts() == 2);
    if (call_.continues(block_.batch)) load_states();
    if (outputs_.out.rank() != 0)
      walk(final != nullptr ? &plan_.final_step() : nullptr);
    else
      gather(plan_.final_step());
    hwy::FlushStream();
    if (final != nullptr) store_states(*final, key_sums);
    if (block_.first_column != 0) return;
    if (outputs_.non_positive != nullptr) std::atomic_ref(*outputs_.non_positive) += non_positive_;
    if (outputs_.vanished != nullptr) std::atomic_ref(*outputs_.vanished) += vanished_;
  }

 private:
  friend Sweep;

  InputRows values(std::int64_t head) const {
    return rows_of(call_.inputs.value, block_.batch, head, block_.first_column, block_.last_column);
  }

  void select_head(std::size_t) {
    query_ = rows_of(call_.inputs.query, block_.batch, head());
    key_ = rows_of(call_.inputs.key, block_.batch, head());
    value_ = values(head());
    if (outputs_.out.rank() == 0) return;
    out_ = rows_of(outputs_.out, block_.batch, head(), block_.first_column, block_.last_column);
    stream_ = outputs_.out.size() >= kBeyondCaches && whole_vectors(out_);
  }

  void load_states() {
    initial_ = true;
    for (std::size_t i = 0; i < heads_; ++i) {
      const std::int64_t h = block_.first_head + static_cast<std::int64_t>(i);
      float* sums = pieces_[i].initial();
      if (scaled()) pieces_[i].open_scale() = call_.initial->scale(block_.batch, h);
      for (int part = 0; part < call_.initial->parts(); ++part, sums = pieces_[i].rest()) {
        const float* from = call_.initial->sums(block_.batch, h, part) + block_.first_column;
        for (std::size_t f = 0; f < features_; ++f)
          copy_row(sums + f * ldm_, from + f * static_cast<std::size_t>(call_.sizes.value_dim), columns_);
        copy_row(sums + width_ * ldm_, call_.initial->key_sum(block_.batch, h, part), features_);
      }
    }
  }

  void store_states(LinearState& final, const FinalKeySums& key_sums) {
    const bool any = plan_.final_step().has_core(initial_);
    for (std::size_t i = 0; i < heads_; ++i) {
      const std::int64_t h = block_.first_head + static_cast<std::int64_t>(i);
      const float* sums = any ? pieces_[i].sum(sum_) : nullptr;
      const std::int64_t index = block_.batch * call_.sizes.heads + h;
      if (block_.first_column == 0) key_sums.scale[index] = any ? pieces_[i].sum_scale() : kNoScale;
      for (int part = 0; part < final.parts(); ++part) {
        if (part == 1) sums = any && pieces_[i].rest_valid() ? pieces_[i].rest() : nullptr;
        float* to = final.sums(block_.batch, h, part) + block_.first_column;
        for (std::size_t f = 0; f < features_; ++f) {
          float* row = to + f * static_cast<std::size_t>(call_.sizes.value_dim);
          sums != nullptr ? copy_row(row, sums + f * ldm_, columns_) : zero_rows(row, columns_, 0, 1);
        }
        if (block_.first_column != 0) continue;
        float* z = key_sums.z + (index * 2 + part) * call_.features;
        sums != nullptr ? copy_row(z, sums + width_ * ldm_, features_) : zero_rows(z, features_, 0, 1);
      }
    }
  }

  /// Has the products of this chunk fetch the rows of the next one.
  void fetch_rows(const SweepStep& step) {
    const Place next = next_rows(step);
    const bool diagonal = queries_are_keys(call_.inputs.mask);
    ahead_.start(fetches(diagonal, diagonal));
    fetch(ahead_, rows_of(call_.inputs.query, block_.batch, next.head), next.rows);
    if (!diagonal) return;
    fetch(ahead_, rows_of(call_.inputs.key, block_.batch, next.head), next.rows);
    fetch(ahead_, values(next.head), next.rows);
  }
  void fetch_others(std::int64_t ordinal) {
    const Place next = next_others(ordinal);
    ahead_.start(fetches(false, true));
    fetch(ahead_, rows_of(call_.inputs.key, block_.batch, next.head), next.rows);
    fetch(ahead_, values(next.head), next.rows);
  }
  /// How often the products of a chunk fetch.
  std::size_t fetches(bool triangle, bool state) const {
    return std::max<std::size_t>(1, (triangle ? fetches_of(chunk_, kPad, features_, Ahead::kSteps) : 0) +
                                        fetches_of(chunk_, columns_, features_, Ahead::kSteps) +
                                        (state ? fetches_of(features_, columns_, chunk_, Ahead::kSteps) : 0));
  }

  void load_others(Mask::Interval range, std::size_t rows) {
    load_features(own_, call_, false, head(), key_, range, k_, ldf_, rows, wide_, scales_.key.data());
    scales_.end_keys(range);
    load_rows(value_, range, v_, ldm_, rows);
  }

  void add_others(std::size_t count, Pieces& pieces) {
    float* sums = pieces.open();
    const auto [k, fade] = enter(pieces, k_, ldf_, width_, count, faded_, power_);
    add_product(pieces, {sums, ldm_, k, ldf_, v_, ldm_, round_up(features_, kRowBlock), count, &ahead_},
                value_width_, fade);
    add_sums(pieces, sums + width_ * ldm_, k, ldf_, nullptr, 0, count, width_, fade);
  }

  void rows(const SweepStep& step, const float* core) {
    const auto count = static_cast<std::size_t>(step.rows.end - step.rows.begin);
    if (core == nullptr && tiles_.empty()) return write_zeros(step.rows);
    std::size_t rows = round_up(count, kRowBlock);
    const bool triangle = !tiles_.empty() && tiles_.front().triangle;
    if (triangle) {
      const Mask::Interval keys = tiles_.front().others;
      rows = std::max(rows, round_up(static_cast<std::size_t>(keys.end - keys.begin), kRowBlock));
    }
    load_features(own_, call_, true, head(), query_, step.rows, q_, ldf_, rows, wide_, query_scale_.data());
    if (triangle) load_others(tiles_.front().others, rows);
    if (scaled()) find_highest(count, triangle);
    const float* q = meet(step, core, q_, ldf_, width_, rows, faded_, power_);
    if (triangle) {
      diagonal(rows, q, core);
    } else {
      for_each_panel(Multiply<Left::plain>{o_, ldm_, q, ldf_, core != nullptr ? core : sum_, ldm_, rows,
                                           core != nullptr ? features_ : 0, &ahead_},
                     value_width_);
    }
    for (std::size_t i = 0; i < count; ++i)
      denominators_[i] =
          call_.epsilon + denominator_of(triangle ? p_ + i * chunk_ : nullptr, i + 1, q + i * ldf_,
                                         core != nullptr ? core + width_ * ldm_ : nullptr);
    // Only now may the state, which `core` is part of, take the chunk in.
    if (triangle) add_while_loaded(tiles_.front().others);
    std::uint32_t seeing = core != nullptr || triangle ? ~0u : 0;
    for (std::size_t tile = triangle ? 1 : 0; tile < tiles_.size(); ++tile)
      seeing |= edge(tiles_[tile], count);
    write_rows(step.rows, seeing);
  }

  /// The keys of the chunk itself, of which each query sees those before it and its own.
  void diagonal(std::size_t rows, const float* q, const float* core) {
    transpose(k_transposed_, chunk_, k_, ldf_, rows, features_);
    MultiplyLower{p_, chunk_, q_, ldf_, k_transposed_, chunk_, rows, features_, &ahead_}();
    if (decay() != nullptr) decay()->fade(p_, chunk_, rows);
    if (scaled()) scales_.scale_triangle(p_, chunk_, rows);
    for_each_panel(
        MultiplyWithTriangle<false>{o_, ldm_, q, ldf_, core != nullptr ? core : sum_, ldm_, p_, chunk_, v_,
                                    ldm_, rows, core != nullptr ? features_ : 0, &ahead_},
        value_width_);
  }

  /// The largest log-scale of the keys that each row sees in the core and on the diagonal, which its results
  /// are relative to.
  void find_highest(std::size_t count, bool triangle) {
    double highest = core_scale_;
    for (std::size_t i = 0; i < count; ++i) {
      if (triangle) highest = largest_scale(&scales_.key[i], 1, highest);
      highest_[i] = highest;
      scales_.query[i] = -finite_scale(highest);
    }
    std::fill(scales_.query.begin() + static_cast<std::ptrdiff_t>(count), scales_.query.end(), kNoScale);
  }

  /// The same with the keys of an edge: rows that see a larger one are scaled down to it.
  void raise_highest(const EdgeTile& tile, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      double highest = highest_[i];
      for (std::uint32_t word = tile.seen[i]; word != 0; word &= word - 1)
        highest = largest_scale(&scales_.key[static_cast<std::size_t>(std::countr_zero(word))], 1, highest);
      if (highest == highest_[i]) continue;
      if (highest_[i] != kNoScale) {
        const float factor = exp_of(highest_[i] - highest);
        copy_row(o_ + i * ldm_, o_ + i * ldm_, value_width_, factor);
        denominators_[i] *= factor;
      }
      highest_[i] = highest;
      scales_.query[i] = -highest;
    }
  }

  /// Σ_j<count weights[j] + q·z, where given.
  float denominator_of(const float* weights, std::size_t count, const float* q, const float* z) const {
    const F32 d;
    const std::size_t lanes = hn::Lanes(d);
    Vec32 sum = hn::Zero(d);
    if (z != nullptr) {
      for (std::size_t f = 0; f < width_; f += lanes)
        sum = hn::MulAdd(hn::Load(d, q + f), hn::Load(d, z + f), sum);
    }
    if (weights != nullptr) {
      std::size_t j = 0;
      for (; j + lanes <= count; j += lanes) sum = hn::Add(sum, hn::Load(d, weights + j));
      if (j < count)
        sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, count - j), hn::Load(d, weights + j)));
    }
    return hn::GetLane(hn::SumOfLanes(d, sum));
  }

  /// Adds what the rows see of an edge; a bit for each of them that sees anything.
  std::uint32_t edge(const EdgeTile& tile, std::size_t count) {
    const auto keys = static_cast<std::size_t>(tile.others.end - tile.others.begin);
    load_others(tile.others, round_up(keys, kRowBlock));
    transpose(k_transposed_, chunk_, k_, ldf_, round_up(keys, kRowBlock), features_);
    const EdgeWeights weights(tile, count, keys, p_);
    weights.multiply(q_, ldf_, k_transposed_, features_);
    if (scaled()) {
      raise_highest(tile, count);
      weights.scale(scales_);
    }
    weights.add_to_queries(o_, ldm_, v_, ldm_, value_width_);
    std::uint32_t seeing = 0;
    for (std::size_t i = 0; i < count; ++i) {
      denominators_[i] += weights.sum(i);
      if (tile.seen[i] != 0) seeing |= 1u << i;
    }
    add_while_loaded(tile.others);
    return seeing;
  }

  float* normaliser_of(std::int64_t row) const {
    const bool wanted = block_.first_column == 0 && outputs_.normaliser.rank() != 0;
    return wanted ? outputs_.normaliser.at(block_.batch, row, head()) : nullptr;
  }

  /// out = O / d, and d or its logarithm where it is wanted; zeros for rows that see nothing, for those whose
  /// d vanishes and, with log-scales, for those whose d is not positive.
  void write_rows(Mask::Interval rows, std::uint32_t seeing) {
    const auto count = static_cast<std::size_t>(rows.end - rows.begin);
    if (scaled() && call_.normalise && outputs_.normaliser.rank() != 0) take_logarithms(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = static_cast<std::size_t>(rows.begin) + i;
      const bool sees = seeing == ~0u || (seeing >> i & 1) != 0;
      const bool divides = call_.normalise && sees;
      const bool positive = !divides || !(denominators_[i] <= least_);
      const bool vanishes = !positive && denominators_[i] >= -least_;
      non_positive_ += positive ? 0 : 1;
      vanished_ += vanishes ? 1 : 0;
      const bool zero = !sees || vanishes || (!positive && scaled());
      if (zero) zero_rows(o_, ldm_, i, i + 1);
      float scale = divides ? 1.0f / denominators_[i] : 1.0f;
      if (scaled() && !call_.normalise) scale = exp_of(query_scale_[i] + highest_[i]);
      store_row(out_, row, o_ + i * ldm_, zero ? 1.0f : scale, stream_);
      if (float* normaliser = normaliser_of(rows.begin + static_cast<std::int64_t>(i)))
        *normaliser = !divides   ? 1.0f
                      : zero     ? std::numeric_limits<float>::infinity()
                      : scaled() ? log_denominator(i)
                                 : denominators_[i];
    }
  }

  void take_logarithms(std::size_t count) {
    const F32 d;
    for (std::size_t i = 0; i < count; i += hn::Lanes(d))
      hn::Store(kernels::HWY_NAMESPACE::fast_log(d, hn::Load(d, denominators_ + i)), d, power_ + i);
  }
  float log_denominator(std::size_t i) const {
    return static_cast<float>(highest_[i] + static_cast<double>(power_[i]));
  }

  void write_zeros(Mask::Interval rows) {
    clear_rows(out_, static_cast<std::size_t>(rows.begin), static_cast<std::size_t>(rows.end));
    for (std::int64_t row = rows.begin; row < rows.end; ++row)
      if (float* normaliser = normaliser_of(row)) *normaliser = 1.0f;
  }

  const AttentionOutputs& outputs_;
  const std::size_t features_, columns_;   // F, and M of this block
  const std::size_t width_, value_width_;  // F and M padded
  const std::size_t ldf_, ldm_;            // from row to row of φ and of values
  Workspace workspace_;
  float *q_, *faded_, *k_, *k_transposed_;               // φQ, rows with their decay, φK [C, F] and φKᵀ
  float *v_, *o_, *p_;                                   // V, O [C, M] and P [C, C]
  float* wide_;                                          // rows of bf16, widened
  float *power_, *denominators_;                         // [C]
  std::vector<double> query_scale_, highest_;            // with log-scales: of the queries, and m [C]
  const float least_ = least_denominator(call_.scaled);  // what denominators must exceed
  std::int64_t non_positive_ = 0, vanished_ = 0;         // denominators

  // The head at work.
  InputRows query_, key_, value_;
  OutputRows out_;
  bool stream_ = false;  // whether `out_` is written past the caches
};

void run_forward_block(Context& own, const LinearCall& call, const AttentionOutputs& outputs,
                       const LinearBlock& block, LinearState* final, const FinalKeySums& key_sums) {
  ForwardSweep(own, call, outputs, block).run(final, key_sums);
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(run_forward_block);

void linear_forward_block(Context& own, const LinearCall& call, const AttentionOutputs& outputs,
                          const LinearBlock& block, LinearState* final, const FinalKeySums& key_sums) {
  HWY_DYNAMIC_DISPATCH(run_forward_block)(own, call, outputs, block, final, key_sums);
}

}  // namespace linnet
#endif  // HWY_ONCE
