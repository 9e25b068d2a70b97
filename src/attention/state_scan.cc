#include "attention/state_scan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention/linear/linear_state.h"
#include "base/fail.h"
#include "base/random.h"

namespace linnet {
namespace {

constexpr const char* operation = "linear attention state";

const LinearState& linear(const State& state) {
  return family_state<const LinearState>(operation, "a state", state);
}

}  // namespace

/// What a message holds of a slot.
struct StateScan::Slot {
  std::int64_t tokens = 0;
  std::vector<float> floats;

  std::size_t bytes() const { return sizeof(tokens) + floats.size() * sizeof(float); }
};

StateScan::StateScan(const State& like, View<const float> decay)
    : decay_(decay),
      slots_(like.slots()),
      heads_(linear(like).shape().heads),
      features_(linear(like).features()),
      value_dim_(linear(like).shape().value_dim),
      floats_(like.saved_floats(0)),
      gradient_floats_(slots_ > 0 ? like.gradient_floats(0) : 0),
      parts_(linear(like).parts()),
      scaled_(linear(like).scaled()) {}

double StateScan::factor(std::int64_t head, std::int64_t tokens) const {
  return decay_.rank() == 0 ? 1 : std::pow(static_cast<double>(decay_(head)), static_cast<double>(tokens));
}

double StateScan::fall(std::int64_t head, std::int64_t tokens) const {
  return decay_.rank() == 0 ? 0 : static_cast<double>(tokens) * portable_log(decay_(head));
}

template <class Body>
void StateScan::each_number(std::int64_t head, const Body& body) const {
  const std::int64_t sums = features_ * value_dim_;
  for (std::int64_t i = 0; i < sums; ++i) body(static_cast<std::size_t>(head * sums + i));
  for (std::int64_t f = 0; f < features_; ++f)
    body(static_cast<std::size_t>(heads_ * sums + head * features_ + f));
}

StateScan::Slot StateScan::slot_of(const std::byte* message, std::int64_t slot) const {
  Slot result;
  result.floats.resize(static_cast<std::size_t>(floats_));
  const std::byte* const from = message + static_cast<std::size_t>(slot) * result.bytes();
  std::memcpy(&result.tokens, from, sizeof(result.tokens));
  std::memcpy(result.floats.data(), from + sizeof(result.tokens), result.floats.size() * sizeof(float));
  return result;
}

void StateScan::write_slot(std::byte* message, std::int64_t slot, const Slot& from) const {
  std::byte* const to = message + static_cast<std::size_t>(slot) * from.bytes();
  std::memcpy(to, &from.tokens, sizeof(from.tokens));
  std::memcpy(to + sizeof(from.tokens), from.floats.data(), from.floats.size() * sizeof(float));
}

std::vector<std::byte> StateScan::message_of(const State& state) const {
  Slot slot;
  slot.floats.resize(static_cast<std::size_t>(floats_));
  std::vector<std::byte> message(static_cast<std::size_t>(slots_) * slot.bytes());
  for (std::int64_t i = 0; i < slots_; ++i) {
    slot.tokens = state.position(i);
    state.save(i, slot.floats);
    write_slot(message.data(), i, slot);
  }
  return message;
}

void StateScan::read(State& state, std::span<const std::byte> message) const {
  for (std::int64_t i = 0; i < slots_; ++i) {
    const Slot slot = slot_of(message.data(), i);
    if (slot.tokens == 0)
      state.reset(i);
    else
      state.restore(i, slot.floats, slot.tokens);
  }
}

namespace {

/// Where the log-scale of a head is among the floats of a slot, which end with two for each head.
std::size_t place_of_scale(const std::vector<float>& floats, std::int64_t heads, std::int64_t head) {
  return floats.size() - 2 * static_cast<std::size_t>(heads - head);
}
double scale_of(const std::vector<float>& floats, std::int64_t heads, std::int64_t head) {
  const std::size_t at = place_of_scale(floats, heads, head);
  return static_cast<double>(floats[at]) + static_cast<double>(floats[at + 1]);
}

}  // namespace

void StateScan::append(std::span<std::byte> earlier, std::span<const std::byte> later) const {
  for (std::int64_t i = 0; i < slots_; ++i) {
    Slot before = slot_of(earlier.data(), i);
    const Slot after = slot_of(later.data(), i);
    if (after.tokens == 0) continue;
    if (before.tokens == 0) {
      write_slot(earlier.data(), i, after);
      continue;
    }
    for (std::int64_t head = 0; head < heads_; ++head) {
      double of_before = factor(head, after.tokens), of_after = 1;
      if (scaled_) {
        const double mine = scale_of(before.floats, heads_, head) + fall(head, after.tokens),
                     other = scale_of(after.floats, heads_, head);
        of_before = mine >= other ? 1 : std::exp(mine - other);
        of_after = mine > other ? std::exp(other - mine) : 1;
        write_scale(&before.floats[place_of_scale(before.floats, heads_, head)], std::max(mine, other));
      }
      const auto rest = static_cast<std::size_t>(gradient_floats_);  // from a sum to what it rounded off
      const auto value = [&](const Slot& slot, std::size_t at) {
        return static_cast<double>(slot.floats[at]) -
               (parts_ == 2 ? static_cast<double>(slot.floats[at + rest]) : 0);
      };
      each_number(head, [&](std::size_t at) {
        const double sum = of_before * value(before, at) + of_after * value(after, at);
        before.floats[at] = static_cast<float>(sum);
        if (parts_ == 2)
          before.floats[at + rest] = static_cast<float>(static_cast<double>(before.floats[at]) - sum);
      });
    }
    before.tokens += after.tokens;
    write_slot(earlier.data(), i, before);
  }
}

void StateScan::raise_scales(State& state, const State& other) const {
  const LinearState &mine = linear(state), &others = linear(other);
  for (std::int64_t i = 0; scaled_ && i < slots_; ++i) {
    if (mine.position(i) == 0 || others.position(i) == 0) continue;
    std::vector<float> floats(static_cast<std::size_t>(floats_));
    state.save(i, floats);
    for (std::int64_t head = 0; head < heads_; ++head) {
      const double difference = mine.scale(i, head) - others.scale(i, head);
      if (!(difference < 0)) continue;
      const auto weight = static_cast<float>(std::exp(difference));
      each_number(head, [&](std::size_t at) {
        for (int part = 0; part < parts_; ++part)
          floats[at + static_cast<std::size_t>(part * gradient_floats_)] *= weight;
      });
      write_scale(&floats[place_of_scale(floats, heads_, head)], others.scale(i, head));
    }
    state.restore(i, floats, state.position(i));
  }
}

std::vector<std::byte> StateScan::gradient_message_of(View<const float> gradient, const State& initial,
                                                      const State& own) const {
  std::vector<float> message;
  message.reserve(static_cast<std::size_t>(slots_ * (gradient_floats_ + heads_)));
  const LinearState &before = linear(initial), &after = linear(own);
  for (std::int64_t i = 0; i < slots_; ++i) {
    message.insert(message.end(), gradient.at(i), gradient.at(i) + gradient_floats_);
    for (std::int64_t head = 0; head < heads_; ++head) {
      double scale = scaled_ ? 1 : factor(head, own.position(i));
      const double fallen = before.scale(i, head) + fall(head, own.position(i));
      // Of an empty state nothing is left, and none of its gradient is wanted.
      if (scaled_ && before.position(i) == 0)
        scale = 0;
      else if (scaled_ && after.position(i) > 0 && after.scale(i, head) > fallen)
        scale = std::exp(fallen - after.scale(i, head));
      message.push_back(static_cast<float>(scale));
    }
  }
  const auto bytes = std::as_bytes(std::span(message));
  return {bytes.begin(), bytes.end()};
}

void StateScan::read_gradient(View<float> gradient, std::span<const std::byte> message) const {
  const auto floats = static_cast<std::size_t>(gradient_floats_ + heads_);
  for (std::int64_t i = 0; i < slots_; ++i)
    std::memcpy(gradient.at(i), message.data() + static_cast<std::size_t>(i) * floats * sizeof(float),
                static_cast<std::size_t>(gradient_floats_) * sizeof(float));
}

void StateScan::prepend_gradient(std::span<std::byte> later, std::span<const std::byte> earlier) const {
  std::vector<float> behind(later.size() / sizeof(float)), before(behind.size());
  std::memcpy(behind.data(), later.data(), later.size());
  std::memcpy(before.data(), earlier.data(), earlier.size());
  const auto floats = static_cast<std::size_t>(gradient_floats_ + heads_);
  for (std::size_t slot = 0; slot < static_cast<std::size_t>(slots_); ++slot) {
    float* const to = behind.data() + slot * floats;
    const float* const from = before.data() + slot * floats;
    for (std::int64_t head = 0; head < heads_; ++head) {
      const std::size_t at_factor = static_cast<std::size_t>(gradient_floats_ + head);
      const float scale = from[at_factor];
      each_number(head, [&](std::size_t at) { to[at] = from[at] + scale * to[at]; });
      to[at_factor] *= scale;
    }
  }
  std::memcpy(later.data(), behind.data(), later.size());
}

}  // namespace linnet
