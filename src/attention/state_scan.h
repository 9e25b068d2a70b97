#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "linnet/attention.h"

namespace linnet {

/// States of the linear family along a sequence that is cut into stretches. What a stretch of n tokens leaves
/// is an affine function of what it finds, S ↦ γⁿ S + S′, with S′ the state of its tokens alone. Such
/// functions combine associatively, so that a scan over the stretches gives each of them the state that it
/// continues (Sun et al. 2025, "LASP-2"; Chou et al. 2025, "ZeCO"). The gradients of the states combine
/// likewise, from the last stretch to the first.
///
/// A message is what such a scan combines, of all slots of a state.
class StateScan {
 public:
  /// For states like this one, which is of the linear family. `decay` is γ [H] as in AttentionInputs, or
  /// empty.
  StateScan(const State& like, View<const float> decay);

  /// The numbers of a state, and of how many tokens they are.
  std::vector<std::byte> message_of(const State& state) const;
  void read(State& state, std::span<const std::byte> message) const;

  /// `earlier` becomes the state of its tokens followed by those of `later`.
  void append(std::span<std::byte> earlier, std::span<const std::byte> later) const;

  /// Rewrites `state` with the larger log-scales of its own and of `other`, so that its gradient is relative
  /// to the same numbers on all processes.
  void raise_scales(State& state, const State& other) const;

  /// The gradient [slots, G] of a stretch's initial state as far as it comes from the stretch itself, and the
  /// factors with which that of its final state adds to it. `own` is the state of the stretch's tokens alone.
  std::vector<std::byte> gradient_message_of(View<const float> gradient, const State& initial,
                                             const State& own) const;
  void read_gradient(View<float> gradient, std::span<const std::byte> message) const;

  /// The same for a stretch that begins where `earlier` does and ends where `later` ends, in `later`.
  void prepend_gradient(std::span<std::byte> later, std::span<const std::byte> earlier) const;

 private:
  struct Slot;

  /// Where a head's numbers of S and z are among the floats of a slot or of its gradient.
  template <class Body>
  void each_number(std::int64_t head, const Body& body) const;
  /// γ^tokens, and its logarithm, by which log-scales fall.
  double factor(std::int64_t head, std::int64_t tokens) const;
  double fall(std::int64_t head, std::int64_t tokens) const;
  Slot slot_of(const std::byte* message, std::int64_t slot) const;
  void write_slot(std::byte* message, std::int64_t slot, const Slot& from) const;

  View<const float> decay_;
  std::int64_t slots_, heads_, features_, value_dim_;
  std::int64_t floats_, gradient_floats_;  ///< of a slot
  int parts_;
  bool scaled_;
};

}  // namespace linnet
