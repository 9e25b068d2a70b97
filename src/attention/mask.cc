#include "linnet/mask.h"

#include "base/fail.h"

namespace linnet {

Mask Mask::with_key_lengths(std::vector<std::int64_t> lengths) const {
  Mask result = *this;
  result.key_lengths_ = std::move(lengths);
  return result;
}

void Mask::check(const char* operation, std::int64_t batch, std::int64_t queries, std::int64_t keys) const {
  if (kind_ == Kind::causal && queries != keys)
    fail(operation, "expected as many queries as keys under a causal mask, got {} and {}", queries, keys);
  if (key_lengths_.empty()) return;
  if (static_cast<std::int64_t>(key_lengths_.size()) != batch)
    fail(operation, "expected a key length for each of {} batch entries, got {}", batch, key_lengths_.size());
  for (const std::int64_t length : key_lengths_) {
    if (length < 0 || length > keys)
      fail(operation, "expected key lengths from 0 to {}, got {}", keys, length);
  }
}

std::string Mask::name() const {
  std::string name = kind_ == Kind::causal ? "causal" : "full";
  if (!key_lengths_.empty()) name += ", key lengths";
  return name;
}

}  // namespace linnet
