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
        factors_(workspace_.take_zeroed(chunk_)),
        zero_(chunk_),
        query_scale_(scales_.query.size()),
        highest_(scales_.query.size()) {
    for (std::int64_t h = block_.first_head; h < block_.last_head; ++h) rows_.push_back(rows_of_head(h));
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

  static constexpr std::size_t kProducts = 1;

  struct HeadRows {
    InputRows query, key, value;
    ResultRows out;
  };
  const HeadRows& of_head() const { return rows_[index()]; }

  HeadRows rows_of_head(std::int64_t h) const {
    const std::int64_t b = block_.batch, first = block_.first_column, last = block_.last_column;
    HeadRows rows = {rows_of(call_.inputs.query, b, h),
                     rows_of(call_.inputs.key, b, h),
                     rows_of(call_.inputs.value, b, h, first, last),
                     {}};
    if (outputs_.out.rank() == 0) return rows;
    rows.out = result_rows(outputs_.out, rows_of(outputs_.out, b, h, first, last));
    return rows;
  }

  void load_states() {
    initial_ = true;
    for (std::size_t i = 0; i < heads_; ++i) {
      const std::int64_t h = block_.first_head + static_cast<std::int64_t>(i);
      float* sums = pieces_[i].initial();
      if (scaled()) pieces_[i].open_scale() = call_.initial->scale(block_.batch, h) + call_.log_decay(h);
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
      const auto last = static_cast<double>(call_.visible_keys(block_.batch) - 1);
      if (block_.first_column == 0)
        key_sums.scale[index] = any ? pieces_[i].sum_scale() + last * call_.log_decay(h) : kNoScale;
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

  void fetch_rows(std::size_t head, Mask::Interval range) { fetch(ahead_, rows_[head].query, range); }
  void fetch_others(std::size_t head, Mask::Interval range) {
    fetch(ahead_, rows_[head].key, range);
    fetch(ahead_, rows_[head].value, range);
  }

  void load_others(Mask::Interval range, std::size_t rows) {
    load_features(own_, call_, false, head(), of_head().key, range, k_, ldf_, rows, wide_,
                  scales_.key.data());
    scales_.end_keys(range);
    load_rows(of_head().value, range, v_, ldm_, rows);
  }

  void add_others(std::size_t first, std::size_t count, Pieces& pieces) {
    float* sums = pieces.open();
    const auto [k, fade] = enter(pieces, k_, ldf_, width_, first, count, faded_, power_);
    add_product(
        pieces,
        {sums, ldm_, k, ldf_, v_ + first * ldm_, ldm_, round_up(features_, kRowBlock), count, &ahead_},
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
    load_features(own_, call_, true, head(), of_head().query, step.rows, q_, ldf_, rows, wide_,
                  query_scale_.data());
    if (triangle) load_others(tiles_.front().others, rows);
    if (scaled()) find_highest(count, triangle);
    const float* q = meet(step, core, q_, ldf_, width_, rows, faded_, power_);
    if (triangle) weigh_keys(rows);
    const float* z = core != nullptr ? core + width_ * ldm_ : nullptr;
    sum_denominators(count, triangle, q, z);
    // Where nothing comes behind the products, they write the rows themselves.
    const ResultRows& to = of_head().out;
    const bool edges = tiles_.size() > (triangle ? 1 : 0);
    const bool finished = !edges && finish(step.rows, kAll);
    const bool direct = finished && to.whole && count == rows;
    float* out = direct ? to.rows.from(step.rows.begin).floats() : o_;
    const auto ldo = direct ? static_cast<std::size_t>(to.rows.stride) : ldm_;
    const Finish ending = direct ? Finish{factors_, to.stream} : Finish{};
    const float* state = core != nullptr ? core : sum_;
    const std::size_t depth = core != nullptr ? features_ : 0;
    if (triangle)
      for_each_panel(MultiplyWithTriangle<false>{out, ldo, q, ldf_, state, ldm_, p_, chunk_, v_, ldm_, rows,
                                                 depth, &ahead_, ending},
                     direct ? columns_ : value_width_);
    else
      for_each_panel(Multiply<Left::plain>{out, ldo, q, ldf_, state, ldm_, rows, depth, &ahead_, ending},
                     direct ? columns_ : value_width_);
    // Only now may the state, which `core` is part of, take the chunk in.
    if (triangle) add_while_loaded(tiles_.front().others);
    std::uint32_t seeing = core != nullptr || triangle ? kAll : 0;
    for (std::size_t tile = triangle ? 1 : 0; tile < tiles_.size(); ++tile)
      seeing |= edge(tiles_[tile], count);
    if (edges) finish(step.rows, seeing);
    if (!direct) write_rows(step.rows);
  }

  /// P of the keys of the chunk itself, of which each query sees those before it and its own.
  void weigh_keys(std::size_t rows) {
    transpose(k_transposed_, chunk_, k_, ldf_, rows, features_);
    MultiplyLower{p_, chunk_, q_, ldf_, k_transposed_, chunk_, rows, features_, &ahead_}();
    if (decay() != nullptr) decay()->fade(p_, chunk_, rows);
    if (scaled()) scales_.scale_triangle(p_, chunk_, rows);
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

  /// d of the rows, from the core and from the triangle P: of as many rows at once as a vector has lanes.
  void sum_denominators(std::size_t count, bool triangle, const float* q, const float* z) {
    const F32 d;
    constexpr std::size_t lanes = hn::MaxLanes(F32());
    for (std::size_t first = 0; first < count; first += lanes) {
      Vec32 sums[lanes];
      // Rows behind the last one repeat it.
      const auto each = [&](const float* rows, std::size_t ld, const auto& body) HWY_ATTR {
#pragma GCC unroll 16
        for (std::size_t r = 0; r < lanes; ++r)
          body(r, hn::Load(d, rows + std::min(first + r, count - 1) * ld));
      };
      for (Vec32& sum : sums) sum = hn::Zero(d);
      for (std::size_t f = 0; z != nullptr && f < width_; f += lanes) {
        const Vec32 of_core = hn::Load(d, z + f);
        each(q + f, ldf_,
             [&](std::size_t r, Vec32 x) HWY_ATTR { sums[r] = hn::MulAdd(x, of_core, sums[r]); });
      }
      if (triangle) {
        for (std::size_t j = 0; j < first; j += lanes)
          each(p_ + j, chunk_, [&](std::size_t r, Vec32 x) HWY_ATTR { sums[r] = hn::Add(sums[r], x); });
        each(p_ + first, chunk_, [&](std::size_t r, Vec32 x) HWY_ATTR {
          sums[r] = hn::Add(sums[r], hn::IfThenElseZero(hn::FirstN(d, r + 1), x));
        });
      }
      hn::Store(hn::Add(hn::Set(d, call_.epsilon), sum_of_each(sums)), d, denominators_ + first);
    }
  }

  /// Adds what the rows see of an edge; a bit for each of them that sees anything.
  std::uint32_t edge(const EdgeTile& tile, std::size_t count) {
    const auto keys = static_cast<std::size_t>(tile.others.end - tile.others.begin);
    load_others(tile.others, round_up(keys, kRowBlock));
    transpose(k_transposed_, chunk_, k_, ldf_, round_up(keys, kRowBlock), features_);
    const EdgeWeights weights(tile, count, keys, p_, ahead_);
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

  /// Whether no row's denominator vanishes or is negative.
  bool all_positive(std::size_t count) const {
    const F32 d;
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
      const auto low = hn::Le(hn::Load(d, denominators_ + i), hn::Set(d, least_));
      if (!hn::AllFalse(d, hn::And(low, hn::FirstN(d, count - i)))) return false;
    }
    return true;
  }

  void write_normaliser(Mask::Interval rows, std::size_t i, float value) const {
    if (block_.first_column != 0 || outputs_.normaliser.rank() == 0) return;
    *outputs_.normaliser.at(block_.batch, rows.begin + static_cast<std::int64_t>(i), head()) = value;
  }

  /// The rows' factors, 1 / d where they are normalised, and d or its logarithm where it is wanted. Rows that
  /// see nothing, whose d vanishes or, with log-scales, is not positive, are to be zeros; false where there
  /// are any.
  bool finish(Mask::Interval rows, std::uint32_t seeing) {
    const auto count = static_cast<std::size_t>(rows.end - rows.begin);
    const double log_decay = call_.log_decay(head());
    if (scaled() && call_.normalise && outputs_.normaliser.rank() != 0) take_logarithms(count);
    if (call_.normalise && seeing == kAll && all_positive(count)) {
      const F32 d;
      for (std::size_t i = 0; i < count; i += hn::Lanes(d))
        hn::Store(hn::Div(hn::Set(d, 1.0f), hn::Load(d, denominators_ + i)), d, factors_ + i);
      for (std::size_t i = 0; i < count; ++i)
        write_normaliser(rows, i, scaled() ? log_denominator(rows, i, log_decay) : denominators_[i]);
      std::fill(zero_.begin(), zero_.end(), false);
      return true;
    }
    bool all = true;
    for (std::size_t i = 0; i < count; ++i) {
      const bool sees = seeing == kAll || (seeing >> i & 1) != 0;
      const bool divides = call_.normalise && sees;
      const bool positive = !divides || !(denominators_[i] <= least_);
      const bool vanishes = !positive && denominators_[i] >= -least_;
      non_positive_ += positive ? 0 : 1;
      vanished_ += vanishes ? 1 : 0;
      const bool zero = !sees || vanishes || (!positive && scaled());
      all = all && !zero;
      zero_[i] = zero;
      factors_[i] = divides ? 1.0f / denominators_[i] : 1.0f;
      if (scaled() && !call_.normalise) factors_[i] = exp_of(query_scale_[i] + highest_[i]);
      write_normaliser(rows, i,
                       !divides   ? 1.0f
                       : zero     ? std::numeric_limits<float>::infinity()
                       : scaled() ? log_denominator(rows, i, log_decay)
                                  : denominators_[i]);
    }
    return all;
  }

  /// out = O times the rows' factors.
  void write_rows(Mask::Interval rows) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const auto i = static_cast<std::size_t>(row - rows.begin);
      if (zero_[i]) zero_rows(o_, ldm_, i, i + 1);
      store_row(of_head().out.rows, row, o_ + i * ldm_, zero_[i] ? 1.0f : factors_[i], of_head().out.stream);
    }
  }

  void take_logarithms(std::size_t count) {
    const F32 d;
    for (std::size_t i = 0; i < count; i += hn::Lanes(d))
      hn::Store(kernels::HWY_NAMESPACE::fast_log(d, hn::Load(d, denominators_ + i)), d, power_ + i);
  }
  /// Of the weights that row i sees, with its decay.
  float log_denominator(Mask::Interval rows, std::size_t i, double log_decay) const {
    const auto row = static_cast<double>(rows.begin + static_cast<std::int64_t>(i));
    return static_cast<float>(highest_[i] + row * log_decay + static_cast<double>(power_[i]));
  }

  void write_zeros(Mask::Interval rows) {
    clear_rows(of_head().out.rows, static_cast<std::size_t>(rows.begin), static_cast<std::size_t>(rows.end));
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows.end - rows.begin); ++i)
      write_normaliser(rows, i, 1.0f);
  }

  const AttentionOutputs& outputs_;
  const std::size_t features_, columns_;   // F, and M of this block
  const std::size_t width_, value_width_;  // F and M padded
  const std::size_t ldf_, ldm_;            // from row to row of φ and of values
  Workspace workspace_;
  float *q_, *faded_, *k_, *k_transposed_;               // φQ, rows with their decay, φK [C, F] and φKᵀ
  float *v_, *o_, *p_;                                   // V, O [C, M] and P [C, C]
  float* wide_;                                          // rows of bf16, widened
  float *power_, *denominators_, *factors_;              // [C]
  std::vector<bool> zero_;                               // rows that are zeros [C]
  std::vector<double> query_scale_, highest_;            // with log-scales: of the queries, and m [C]
  const float least_ = least_denominator(call_.scaled);  // what denominators must exceed
  std::int64_t non_positive_ = 0, vanished_ = 0;         // denominators
  std::vector<HeadRows> rows_;                           // of each head
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
