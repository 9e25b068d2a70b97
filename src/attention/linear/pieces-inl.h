// The state of one head along a sweep. Include it inside a file that is compiled by hwy/foreach_target.h.

#if defined(LINNET_ATTENTION_LINEAR_PIECES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_LINEAR_PIECES_INL_H_
#undef LINNET_ATTENTION_LINEAR_PIECES_INL_H_
#else
#define LINNET_ATTENTION_LINEAR_PIECES_INL_H_
#endif

#include <vector>

#include "attention/linear/log_scales-inl.h"
#include "attention/linear/sweep_plan.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// The sum over the chunks that all rows of a step see. Chunks come at the end and go at the beginning, and
/// nothing is ever subtracted: sums of whole pieces, the runs of chunks that go together, are kept apart as a
/// queue of two stacks. The older pieces hold the sums from themselves to the pivot, so that a piece goes
/// without any work; the newer ones are summed up as they close, and become the older ones when those are
/// used up. Every chunk is added to a sum, and every piece to two others, once. A causal mask has a single
/// piece that grows. With log-scaled maps every sum has a log-scale of its own: it stands for e^scale times
/// its numbers.
class Pieces {
 public:
  /// Floats of memory for a head whose sums take `floats` of them, a multiple of kPad.
  static std::size_t memory(const SweepPlan& plan, std::size_t floats) { return (slots(plan) + 2) * floats; }

  Pieces(const SweepPlan& plan, std::size_t floats, float* memory, bool scaled)
      : plan_(&plan),
        floats_(floats),
        slots_(memory),
        newer_(memory + slots(plan) * floats),
        rest_(newer_ + floats),
        scales_(scaled ? slots(plan) : 0) {
    // Sums are assigned before they are read, all but the padding of their rows.
    std::memset(memory, 0, slots(plan) * floats * sizeof(float));
  }

  /// The sums of what comes before the first chunk, for the caller to fill, as `rest()` with what they
  /// rounded off and `open_scale()`.
  float* initial() {
    initial_ = rest_valid_ = true;
    std::memset(rest_, 0, floats_ * sizeof(float));
    fresh_ = false;
    return slot(0);
  }

  /// The ordinal of the chunk to be added next.
  std::int64_t next() const { return next_; }

  /// Lets go of the chunks before `ordinal`, at which a piece begins.
  HWY_NOINLINE void leave(std::int64_t ordinal) {
    if (initial_ && ordinal == 0) return;
    if (ordinal >= next_) {
      while (begin(open_) < ordinal) ++open_;
      first_ = pivot_ = open_;
      next_ = ordinal;
      initial_ = rest_valid_ = false;
      fresh_ = true;
      return;
    }
    while (begin(first_) < ordinal) ++first_;
    if (first_ <= pivot_) return;
    // The older pieces are used up: the newer ones take their place.
    for (std::int64_t piece = open_ - 2; piece >= first_; --piece)
      add(slot(piece), scale_of(piece), slot(piece), scale_of(piece), slot(piece + 1), scale_of(piece + 1));
    pivot_ = open_;
  }

  /// The sums that the chunk `next()` is to be added to, or assigned to where they are `fresh()`; `added`
  /// says that it is done.
  HWY_NOINLINE float* open() {
    if (completes_piece()) close_piece();
    if (!fresh_ && !rest_valid_) {
      std::memset(rest_, 0, floats_ * sizeof(float));
      rest_valid_ = true;
    }
    return slot(open_);
  }
  float* rest() const { return rest_; }
  /// What the sum at `sums` in the open piece rounded off.
  float* rest_of(const float* sums) const { return rest_ + (sums - slot(open_)); }
  bool rest_valid() const { return rest_valid_; }
  bool fresh() const { return fresh_; }
  /// The log-scale of the open piece, and that of the last `sum`.
  double& open_scale() { return *scale_of(open_); }
  double sum_scale() const { return sum_scale_; }
  void added() {
    fresh_ = false;
    ++next_;
  }

  /// The sum of all that is held, which may be put into `sum`; null where nothing is held.
  HWY_NOINLINE const float* sum(float* sum) {
    if (completes_piece() && (first_ < pivot_ || pivot_ < open_)) close_piece();
    struct Part {
      const float* sums;
      const double* scale;
    };
    const Part parts[] = {{first_ < pivot_ ? slot(first_) : nullptr, scale_of(first_)},
                          {pivot_ < open_ ? newer_ : nullptr, &newer_scale_},
                          {fresh_ ? nullptr : slot(open_), scale_of(open_)}};
    const float* result = nullptr;
    for (const Part& part : parts) {
      if (part.sums == nullptr) continue;
      if (result != nullptr)
        add(sum, &sum_scale_, result, &sum_scale_, part.sums, part.scale);
      else if (!scales_.empty())
        sum_scale_ = *part.scale;
      result = result != nullptr ? sum : part.sums;
    }
    return result;
  }

 private:
  // A chunk may come before the one that it takes the place of has gone.
  static std::size_t slots(const SweepPlan& plan) {
    return static_cast<std::size_t>(plan.most_pieces()) + (plan.pieces().size() > 1 ? 1 : 0);
  }

  std::int64_t begin(std::int64_t piece) const { return plan_->pieces()[static_cast<std::size_t>(piece)]; }
  float* slot(std::int64_t piece) const {
    return slots_ + static_cast<std::size_t>(piece) % slots(*plan_) * floats_;
  }

  /// Whether the open piece ends where the next chunk begins.
  bool completes_piece() const {
    const auto after = static_cast<std::size_t>(open_ + 1);
    return !fresh_ && after < plan_->pieces().size() && plan_->pieces()[after] == next_;
  }

  HWY_NOINLINE void close_piece() {
    if (pivot_ < open_) {
      add(newer_, &newer_scale_, newer_, &newer_scale_, slot(open_), scale_of(open_));
    } else {
      std::memcpy(newer_, slot(open_), floats_ * sizeof(float));
      if (!scales_.empty()) newer_scale_ = *scale_of(open_);
    }
    ++open_;
    fresh_ = true;
    rest_valid_ = false;
  }

  double* scale_of(std::int64_t piece) {
    return scales_.empty() ? nullptr : &scales_[static_cast<std::size_t>(piece) % scales_.size()];
  }

  /// to = a + b; log-scales where there are any.
  HWY_NOINLINE void add(float* to, double* to_scale, const float* a, const double* a_scale, const float* b,
                        const double* b_scale) const {
    const F32 d;
    if (scales_.empty()) {
      for (std::size_t i = 0; i < floats_; i += hn::Lanes(d))
        hn::Store(hn::Add(hn::Load(d, a + i), hn::Load(d, b + i)), d, to + i);
      return;
    }
    const double scale = std::max(*a_scale, *b_scale);
    const Vec32 of_a = hn::Set(d, exp_of(*a_scale - finite_scale(scale))),
                of_b = hn::Set(d, exp_of(*b_scale - finite_scale(scale)));
    for (std::size_t i = 0; i < floats_; i += hn::Lanes(d))
      hn::Store(hn::MulAdd(of_a, hn::Load(d, a + i), hn::Mul(of_b, hn::Load(d, b + i))), d, to + i);
    *to_scale = scale;
  }

  const SweepPlan* plan_;
  std::size_t floats_;
  float *slots_, *newer_, *rest_;
  // Pieces [first, pivot) are the older ones, [pivot, open) the newer ones, and `open` takes chunks.
  std::int64_t first_ = 0, pivot_ = 0, open_ = 0;
  std::int64_t next_ = 0;
  bool fresh_ = true, initial_ = false, rest_valid_ = false;
  std::vector<double> scales_;  // of the slots, where the map is log-scaled
  double newer_scale_ = 0, sum_scale_ = 0;
};

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
