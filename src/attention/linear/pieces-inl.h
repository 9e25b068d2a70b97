// The state of one head along a sweep. Include it inside a file that is compiled by hwy/foreach_target.h.

#if defined(LINNET_ATTENTION_LINEAR_PIECES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_LINEAR_PIECES_INL_H_
#undef LINNET_ATTENTION_LINEAR_PIECES_INL_H_
#else
#define LINNET_ATTENTION_LINEAR_PIECES_INL_H_
#endif

#include "attention/linear/linear_tiles-inl.h"
#include "attention/linear/sweep_plan.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// The sum over the chunks that all rows of a step see. Chunks come at the end and go at the beginning, and
/// nothing is ever subtracted: sums of whole pieces, the runs of chunks that go together, are kept apart as a
/// queue of two stacks. The older pieces hold the sums from themselves to the pivot, so that a piece goes
/// without any work; the newer ones are summed up as they close, and become the older ones when those are
/// used up. Every chunk is added to a sum, and every piece to two others, once. A causal mask has a single
/// piece that grows.
class Pieces {
 public:
  /// Floats of memory for a head whose sums take `floats` of them, a multiple of kPad.
  static std::size_t Memory(const SweepPlan& plan, std::size_t floats) { return (Slots(plan) + 2) * floats; }

  Pieces(const SweepPlan& plan, std::size_t floats, float* memory)
      : plan_(&plan),
        floats_(floats),
        slots_(memory),
        newer_(memory + Slots(plan) * floats),
        rest_(newer_ + floats) {
    // Sums are assigned before they are read, all but the padding of their rows.
    std::memset(memory, 0, Slots(plan) * floats * sizeof(float));
  }

  /// The sums of what comes before the first chunk, for the caller to fill, as `rest()` with what they
  /// rounded off.
  float* Initial() {
    initial_ = rest_valid_ = true;
    std::memset(rest_, 0, floats_ * sizeof(float));
    fresh_ = false;
    return Slot(0);
  }

  /// The ordinal of the chunk to be added next.
  std::int64_t next() const { return next_; }

  /// Lets go of the chunks before `ordinal`, at which a piece begins.
  void Leave(std::int64_t ordinal) {
    if (initial_ && ordinal == 0) return;
    if (ordinal >= next_) {
      while (Begin(open_) < ordinal) ++open_;
      first_ = pivot_ = open_;
      next_ = ordinal;
      initial_ = rest_valid_ = false;
      fresh_ = true;
      return;
    }
    while (Begin(first_) < ordinal) ++first_;
    if (first_ <= pivot_) return;
    // The older pieces are used up: the newer ones take their place.
    for (std::int64_t piece = open_ - 2; piece >= first_; --piece)
      Add(Slot(piece), Slot(piece), Slot(piece + 1));
    pivot_ = open_;
  }

  /// The sums that the chunk `next()` is to be added to, or assigned to where they are `fresh()`; `Added`
  /// says that it is done.
  float* Open() {
    if (CompletesPiece()) ClosePiece();
    if (!fresh_ && !rest_valid_) {
      std::memset(rest_, 0, floats_ * sizeof(float));
      rest_valid_ = true;
    }
    return Slot(open_);
  }
  float* rest() const { return rest_; }
  /// What the sum at `sums` in the open piece rounded off.
  float* RestOf(const float* sums) const { return rest_ + (sums - Slot(open_)); }
  bool rest_valid() const { return rest_valid_; }
  bool fresh() const { return fresh_; }
  void Added() {
    fresh_ = false;
    ++next_;
  }

  /// The sum of all that is held, which may be put into `sum`; null where nothing is held.
  const float* Sum(float* sum) {
    const float* older = first_ < pivot_ ? Slot(first_) : nullptr;
    if (CompletesPiece() && (older != nullptr || pivot_ < open_)) ClosePiece();
    const float* result = older;
    for (const float* part : {pivot_ < open_ ? newer_ : nullptr, fresh_ ? nullptr : Slot(open_)}) {
      if (part == nullptr) continue;
      if (result != nullptr) Add(sum, result, part);
      result = result != nullptr ? sum : part;
    }
    return result;
  }

 private:
  // A chunk may come before the one that it takes the place of has gone.
  static std::size_t Slots(const SweepPlan& plan) {
    return static_cast<std::size_t>(plan.most_pieces()) + (plan.pieces().size() > 1 ? 1 : 0);
  }

  std::int64_t Begin(std::int64_t piece) const { return plan_->pieces()[static_cast<std::size_t>(piece)]; }
  float* Slot(std::int64_t piece) const {
    return slots_ + static_cast<std::size_t>(piece) % Slots(*plan_) * floats_;
  }

  /// Whether the open piece ends where the next chunk begins.
  bool CompletesPiece() const {
    const auto after = static_cast<std::size_t>(open_ + 1);
    return !fresh_ && after < plan_->pieces().size() && plan_->pieces()[after] == next_;
  }

  void ClosePiece() {
    if (pivot_ < open_)
      Add(newer_, newer_, Slot(open_));
    else
      std::memcpy(newer_, Slot(open_), floats_ * sizeof(float));
    ++open_;
    fresh_ = true;
    rest_valid_ = false;
  }

  void Add(float* to, const float* a, const float* b) const {
    const F32 d;
    for (std::size_t i = 0; i < floats_; i += hn::Lanes(d))
      hn::Store(hn::Add(hn::Load(d, a + i), hn::Load(d, b + i)), d, to + i);
  }

  const SweepPlan* plan_;
  std::size_t floats_;
  float *slots_, *newer_, *rest_;
  // Pieces [first, pivot) are the older ones, [pivot, open) the newer ones, and `open` takes chunks.
  std::int64_t first_ = 0, pivot_ = 0, open_ = 0;
  std::int64_t next_ = 0;
  bool fresh_ = true, initial_ = false, rest_valid_ = false;
};

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
