#include "io/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <vector>

#include "io/file.h"

// The functions are compiled into this file, so that nothing else has to be linked.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace linnet {
namespace {

std::string digits(XXH64_hash_t value) { return fmt::format("{:016x}", value); }

}  // namespace

struct Digest::State {
  XXH3_state_t* hash = XXH3_createState();  // aligned as it has to be
  State() {
    if (hash == nullptr) throw std::bad_alloc();
  }
  ~State() { XXH3_freeState(hash); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Digest::Digest() : state_(std::make_unique<State>()) { XXH3_64bits_reset(state_->hash); }
Digest::~Digest() = default;

void Digest::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->hash, bytes.data(), bytes.size());
}

std::string Digest::text() const { return digits(XXH3_64bits_digest(state_->hash)); }

std::string digest_of(std::span<const std::byte> bytes) {
  return digits(XXH3_64bits(bytes.data(), bytes.size()));
}

std::string digest_of(std::string_view text) { return digest_of(std::as_bytes(std::span(text))); }

std::string digest_of_file(const std::filesystem::path& path) {
  const InputFile file(path);
  std::vector<std::byte> piece(std::min<std::uint64_t>(file.size(), 1 << 20));
  Digest digest;
  for (std::uint64_t begin = 0; begin < file.size(); begin += piece.size()) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), file.size() - begin));
    file.read(begin, part);
    digest.add(part);
  }
  return digest.text();
}

}  // namespace linnet
