// The walk of a sweep over the rows of a group of heads. Include it inside a file that is compiled by
// hwy/foreach_target.h.

#if defined(LINNET_ATTENTION_LINEAR_SWEEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_LINEAR_SWEEP_INL_H_
#undef LINNET_ATTENTION_LINEAR_SWEEP_INL_H_
#else
#define LINNET_ATTENTION_LINEAR_SWEEP_INL_H_
#endif

#include <cmath>
#include <vector>

#include "attention/linear/edge-inl.h"
#include "attention/linear/pieces-inl.h"
#include "base/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// The powers of one head's γ.
class DecayPowers {
 public:
  DecayPowers(float gamma, std::size_t chunk) : gamma_(gamma), falling_(chunk) {
    falling(falling_.data(), 0, chunk);
  }

  /// γ^n, by which a state is multiplied once a chunk.
  Fade power(std::int64_t n) const { return Fade::of(std::pow(gamma_, static_cast<double>(n))); }

  /// to[i] = γ^(least + i).
  HWY_NOINLINE void rising(float* to, std::int64_t least, std::size_t count) const {
    double power = std::pow(gamma_, static_cast<double>(least));
    for (std::size_t i = 0; i < count; ++i, power *= gamma_) to[i] = static_cast<float>(power);
  }
  /// to[i] = γ^(least + count − 1 − i).
  HWY_NOINLINE void falling(float* to, std::int64_t least, std::size_t count) const {
    double power = std::pow(gamma_, static_cast<double>(least));
    for (std::size_t i = count; i-- > 0; power *= gamma_) to[i] = static_cast<float>(power);
  }

  /// weights[i, j] *= γ^(i − j) on and below the diagonal.
  HWY_NOINLINE void fade(float* HWY_RESTRICT weights, std::size_t ld, std::size_t rows) const {
    for (std::size_t i = 0; i < rows; ++i) {
      const float* power = falling_.data() + falling_.size() - 1 - i;
      for (std::size_t j = 0; j <= i; ++j) weights[i * ld + j] *= power[j];
    }
  }

 private:
  double gamma_;
  std::vector<float> falling_;
};

/// What the sweeps have in common. `Task` is the sweep itself:
///   kProducts                  products of a step's rows with a state, and triangles of pairs
///   fetch_rows(head, range)    has `ahead_` fetch rows of a head of the group,
///   fetch_others(head, range)  and of the other side
///   load_others(range, rows)   loads rows of the other side, with zeros up to `rows`
///   add_others(first, count, pieces)  adds `count` of the rows that were loaded to a state
///   rows(step, core)          computes a step's rows; `core` is the sum over the chunks that all of them
///   see, or null
template <class Task>
class Sweep {
 protected:
  static constexpr std::uint32_t kAll = ~0u;  ///< the rows of a step, a bit each, where all of them are meant

  Sweep(Context& own, const LinearCall& call, SweepSide side, const LinearBlock& block)
      : scales_(call.scaled ? static_cast<std::size_t>(call.chunk()) : 0),
        own_(own),
        call_(call),
        side_(side),
        block_(block),
        heads_(static_cast<std::size_t>(block.last_head - block.first_head)),
        chunk_(static_cast<std::size_t>(call.chunk())),
        plan_(call.inputs.mask, side, block.batch, call.sizes.queries, call.sizes.keys, call.chunk(),
              call.state_gradients),
        shift_(side == SweepSide::keys && call.state_gradients ? 1 : 0) {
    compensated_ = call.decays() || scaled() || plan_.chunks() > most_plain_chunks ||
                   (call.initial != nullptr && call.initial->parts() == 2);
    if (call.decays()) {
      for (std::int64_t h = block.first_head; h < block.last_head; ++h)
        decay_.emplace_back(call.decay(h), chunk_);
    }
  }

  /// Takes memory for the heads' sums of `floats` floats each, a multiple of kPad, and for one sum of pieces.
  void take_pieces(std::size_t floats, Workspace& workspace) {
    for (std::size_t head = 0; head < heads_; ++head)
      pieces_.emplace_back(plan_, floats, workspace.take(Pieces::memory(plan_, floats)), scaled());
    sum_ = workspace.take(floats);
  }

  /// Through all steps; `after_last` is what the states are brought to afterwards, where given.
  void walk(const SweepStep* after_last = nullptr) {
    for (std::size_t i = 0; i < plan_.steps().size(); ++i) {
      const SweepStep& step = plan_.steps()[i];
      next_step_ = i + 1 < plan_.steps().size() ? &plan_.steps()[i + 1] : after_last;
      plan_.edge_tiles(step, tiles_);
      gather(step);
      for (head_ = 0; head_ < heads_; ++head_) {
        fetch_next(step);
        const bool core = step.has_core(initial_);
        const float* sum = core ? pieces_[head_].sum(sum_) : nullptr;
        core_scale_ = sum != nullptr ? pieces_[head_].sum_scale() : kNoScale;
        task().rows(step, sum);
      }
    }
    if (after_last != nullptr) gather(*after_last);
  }

  /// Brings the states to what `step` needs.
  HWY_NOINLINE void gather(const SweepStep& step) {
    if (!step.has_core(initial_)) return;
    for (Pieces& pieces : pieces_) pieces.leave(step.first);
    for (std::int64_t ordinal = pieces_[0].next(); ordinal < step.last; ++ordinal) {
      for (head_ = 0; head_ < heads_; ++head_) {
        const Mask::Interval range = plan_.chunk(ordinal);
        const auto count = static_cast<std::size_t>(range.end - range.begin);
        fetch_next(ordinal);
        task().load_others(range, round_up(count, kRowBlock));
        task().add_others(0, count, pieces_[head_]);
        pieces_[head_].added();
      }
    }
  }

  /// Adds the rows of the other side that are loaded to the state, as far as they are chunks that the next
  /// step needs: under a causal mask those of the diagonal.
  HWY_NOINLINE void add_while_loaded(Mask::Interval others) {
    Pieces& pieces = pieces_[head_];
    if (next_step_ == nullptr || !next_step_->has_core(initial_)) return;
    while (next_step_->first <= pieces.next() && pieces.next() < next_step_->last) {
      const Mask::Interval range = plan_.chunk(pieces.next());
      if (range.begin < others.begin || others.end < range.end) return;
      task().add_others(static_cast<std::size_t>(range.begin - others.begin),
                        static_cast<std::size_t>(range.end - range.begin), pieces);
      pieces.added();
    }
  }

  /// `product` into the open piece of a state, C = fade · C + Aᵀ B.
  HWY_NOINLINE void add_product(const Pieces& pieces, const Multiply<Left::transposed>& product,
                                std::size_t columns, Fade fade) const {
    if (pieces.fresh())
      for_each_panel(product, columns);
    else if (fade.lost != 0 || call_.decays())
      for_each_panel(product.template as<Into::fade>(pieces.rest_of(product.c), fade), columns);
    else if (compensated_)
      for_each_panel(product.template as<Into::collect>(pieces.rest_of(product.c), fade), columns);
    else
      for_each_panel(product.template as<Into::add>(), columns);
  }

  /// sums [columns] = fade · sums + Σ_r weight[r · step] tile[r], sums in the open piece of a state.
  HWY_NOINLINE void add_sums(const Pieces& pieces, float* sums, const float* tile, std::size_t ld,
                             const float* weight, std::size_t step, std::size_t rows, std::size_t columns,
                             Fade fade) {
    if (pieces.fresh())
      sum_rows(sums, tile, ld, weight, step, rows, columns);
    else
      collect_rows(sums, pieces.rest_of(sums), tile, ld, weight, step, rows, columns, fade);
  }

  /// rows of the other side as they enter a state, and what the state itself has decayed by then or is
  /// rescaled by.
  struct Entering {
    const float* rows;
    Fade fade;
  };
  /// The rows are `count` of those that are loaded, from row `first` on. `faded` takes them, `power` their
  /// factors.
  HWY_NOINLINE Entering enter(Pieces& pieces, const float* rows, std::size_t ld, std::size_t columns,
                              std::size_t first, std::size_t count, float* faded, float* power) const {
    rows += first * ld;
    if (scaled()) {
      const double* scales = (side_ == SweepSide::queries ? scales_.key : scales_.query).data() + first;
      const double before = pieces.fresh() ? kNoScale : pieces.open_scale();
      const double now = largest_scale(scales, count, before);
      pieces.open_scale() = now;
      exp_rows(power, scales, -finite_scale(now), count);
      scale_rows(faded, rows, ld, power, count, columns);
      const double fall = before - finite_scale(now);
      // With a decay a state may fall by the same factor in every chunk, which f32 alone would round alike.
      return {faded, call_.log_decay(head()) != 0 ? Fade::of(std::exp(fall)) : Fade{.factor = exp_of(fall)}};
    }
    if (decay() == nullptr) return {rows, {}};
    if (side_ == SweepSide::queries)
      decay()->falling(power, 0, count);
    else
      decay()->rising(power, shift_, count);
    scale_rows(faded, rows, ld, power, count, columns);
    return {faded, decay()->power(static_cast<std::int64_t>(count))};
  }

  /// A step's rows, zeros from their end to `padded`, as they meet `core`: decayed since then, or with
  /// both log-scales.
  HWY_NOINLINE const float* meet(const SweepStep& step, const float* core, const float* rows, std::size_t ld,
                                 std::size_t columns, std::size_t padded, float* faded, float* power) const {
    if (core == nullptr || (decay() == nullptr && !scaled())) return rows;
    const auto count = static_cast<std::size_t>(step.rows.end - step.rows.begin);
    if (scaled())
      exp_rows(power, (side_ == SweepSide::queries ? scales_.query : scales_.key).data(), core_scale_, count);
    else if (side_ == SweepSide::queries)
      decay()->rising(power, step.rows.begin - core_end(step) + 1, count);
    else
      decay()->falling(power, core_end(step) - step.rows.end + 1 - shift_, count);
    scale_rows(faded, rows, ld, power, count, columns);
    zero_rows(faded, ld, count, padded);
    return faded;
  }

  /// The row of the other side at which a step's state ends, the first one there where it was swept from the
  /// end.
  std::int64_t core_end(const SweepStep& step) const {
    if (step.last == 0) return side_ == SweepSide::queries ? 0 : call_.sizes.queries;
    const Mask::Interval chunk = plan_.chunk(step.last - 1);
    return side_ == SweepSide::queries ? chunk.end : chunk.begin;
  }

  void turn_to(std::size_t head) { head_ = head; }
  /// The head at work: of the group, and of all.
  std::size_t index() const { return head_; }
  std::int64_t head() const { return block_.first_head + static_cast<std::int64_t>(head_); }
  bool scaled() const { return call_.scaled; }
  const DecayPowers* decay() const { return decay_.empty() ? nullptr : &decay_[head_]; }

  LogScales scales_;              // of the rows that are loaded, with a log-scaled map
  double core_scale_ = kNoScale;  // of the step's core

  Context& own_;
  const LinearCall& call_;
  const SweepSide side_;
  const LinearBlock block_;
  const std::size_t heads_, chunk_;
  const SweepPlan plan_;
  // In a sweep for keys a state at row c weighs query i by γ^(i − c + shift). With the gradients of states it
  // is 1: then those enter and leave with weight 1, and no power is negative.
  const std::int64_t shift_;
  std::vector<EdgeTile> tiles_;  // of the step at work
  std::vector<Pieces> pieces_;   // of each head
  float* sum_ = nullptr;
  bool initial_ = false;
  bool compensated_ = false;  // what the sums over chunks round off is kept
  Ahead ahead_;

 private:
  // Two thousand roundings of a sum of positive terms are some 1e-5 of it at the very worst.
  static constexpr std::int64_t most_plain_chunks = 2048;

  Task& task() { return static_cast<Task&>(*this); }

  /// Has the products of `step` fetch what is loaded after it: for the same step of the next head, or for the
  /// next step of the first one.
  HWY_NOINLINE void fetch_next(const SweepStep& step) {
    const bool triangle = !tiles_.empty() && tiles_.front().triangle;
    const auto rows = static_cast<std::size_t>(step.rows.end - step.rows.begin);
    ahead_.start(triangle ? fetches(rows, Task::kProducts, Task::kProducts, 1, tiles_.size() - 1)
                          : fetches(rows, 0, Task::kProducts, 0, tiles_.size()));
    const bool turns = head_ + 1 == heads_;
    if (turns && &step == &plan_.steps().back()) return;
    const std::size_t head = turns ? 0 : head_ + 1;
    const SweepStep& next = turns ? *(&step + 1) : step;
    task().fetch_rows(head, next.rows);
    for (const Mask::Interval& edge : next.edges) task().fetch_others(head, edge);
  }
  /// The same for the chunk `ordinal`, which a state takes in.
  HWY_NOINLINE void fetch_next(std::int64_t ordinal) {
    const Mask::Interval range = plan_.chunk(ordinal);
    ahead_.start(fetches(static_cast<std::size_t>(range.end - range.begin), 0, 0, 1, 0));
    const bool turns = head_ + 1 == heads_;
    if (turns && ordinal + 1 == plan_.chunks()) return;
    task().fetch_others(turns ? 0 : head_ + 1, plan_.chunk(turns ? ordinal + 1 : ordinal));
  }
  /// How often products of `rows` rows fetch: triangles, rows with a state, rows into one, tiles of edges, of
  /// which about half the pairs are computed.
  std::size_t fetches(std::size_t rows, std::size_t triangles, std::size_t of_rows, std::size_t of_columns,
                      std::size_t tiles) const {
    const auto features = static_cast<std::size_t>(call_.features),
               columns = static_cast<std::size_t>(block_.last_column - block_.first_column);
    const std::size_t of_tile = (fetches_of(kEdge, kPad, features, Ahead::kSteps) +
                                 fetches_of(kEdge, columns, kEdge, Ahead::kSteps)) /
                                2;
    return std::max<std::size_t>(1, triangles * fetches_of(rows, kPad, features, Ahead::kSteps) +
                                        of_rows * fetches_of(rows, columns, features, Ahead::kSteps) +
                                        of_columns * fetches_of(features, columns, rows, Ahead::kSteps) +
                                        tiles * of_tile);
  }

  std::vector<DecayPowers> decay_;
  const SweepStep* next_step_ = nullptr;
  std::size_t head_ = 0;
};

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
