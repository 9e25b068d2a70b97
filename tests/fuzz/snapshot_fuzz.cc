// A stream as Session::save writes it, with right checksum and fingerprint and, where the first byte says so,
// the right size, restored into sessions of every family that generates.

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/fail.h"
#include "fuzz.h"
#include "generation/snapshot.h"
#include "models.h"

namespace linnet::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

struct Case {
  std::shared_ptr<const Model> model;
  std::uint64_t fingerprint;
  Session session;
};

/// A session with a cache and one without for every model.
std::vector<Case>& cases() {
  static std::vector<Case> all = [] {
    std::vector<Case> result;
    for (const std::vector<std::string>& settings : generating())
      for (const bool cache : {true, false}) {
        const auto model = Model::random(tiny_config(settings), 5);
        result.push_back(
            {model, fingerprint(*model), Session(model, 2, {.capacity = 4, .cache = cache, .threads = 1})});
      }
    return result;
  }();
  return all;
}

constexpr std::size_t head_bytes = 80, fingerprint_at = 16, size_at = 72, checksum_bytes = 8;

Bytes repaired(std::string_view input, std::uint64_t model, bool size_too) {
  Bytes bytes(std::max(input.size(), head_bytes + checksum_bytes));
  std::ranges::copy(std::as_bytes(std::span(input)), bytes.begin());
  const auto write = [&](std::size_t at, std::uint64_t value) {
    std::memcpy(&bytes[at], &value, sizeof value);
  };
  const std::size_t end = bytes.size() - checksum_bytes;
  write(fingerprint_at, model);
  if (size_too) write(size_at, end - head_bytes);
  write(end, checksum(std::span(bytes).first(end)));
  return bytes;
}

/// Every call that a restored stream may get; errors about positions and sizes are answers.
void use(Session& session) {
  const auto attempt = [](const auto& body) {
    try {
      body();
    } catch (const Error&) {
    }
  };
  std::vector<float> numbers(5);
  std::vector<std::int32_t> drawn(2);
  const std::vector<std::int32_t> prompt = {1, 2, 3, 4, 0, 1};
  const std::int64_t first = 0;
  attempt([&] { session.logits(0, numbers); });
  attempt([&] { session.fork(1, 0, 3); });
  attempt([&] { session.step(drawn); });
  attempt([&] { session.prefill(0, prompt); });
  attempt([&] { session.observe(std::span(prompt).first(1), std::span(&first, 1)); });
  attempt([&] { session.step(drawn); });
  const Bytes saved = session.save(0);
  session.restore(1, saved);
  if (session.save(1) != saved) report("expected a restored stream to be saved as it was");
}

void restart(Session& session) {
  const std::int64_t label = 0;
  for (const std::int64_t stream : {0, 1}) {
    try {
      session.begin(stream, label, {});
    } catch (const Error&) {
      session.begin(stream, -1, {});
    }
  }
}

}  // namespace

void answer(std::string_view input) {
  const std::uint8_t choice = take_choice(input);
  Case& chosen = cases()[choice % cases().size()];
  restart(chosen.session);
  const Bytes before = chosen.session.save(0);
  try {
    chosen.session.restore(0, repaired(input, chosen.fingerprint, choice < 128));
  } catch (const Error&) {
    if (chosen.session.save(0) != before) report("expected a stream to stay as it was where restore throws");
    throw;
  }
  use(chosen.session);
}

std::vector<std::string> seeds() {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < cases().size(); ++i) {
    Session& session = cases()[i].session;
    for (const std::size_t tokens : {0, 2, 9}) {
      restart(session);
      const std::vector<std::int32_t> prompt(tokens, 3);
      session.prefill(0, prompt);
      const Bytes bytes = session.save(0);
      result.push_back(
          with_choice(static_cast<int>(i), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    }
  }
  return result;
}

std::vector<std::string> words() {
  std::vector<std::string> result = {"LINNETST"};
  for (const std::uint64_t value :
       {0x7fffffffffffffffull, 0x20000000000000ull, 0x1fffffffffffffull, 0x100000000ull, 0x7fffffffull,
        0x7ff0000000000000ull, 0x7ff8000000000000ull}) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
    result.push_back(bytes);
  }
  result.push_back(std::string("\0\0\x80\x7f", 4));
  result.push_back(std::string("\0\0\x80\xff", 4));
  result.push_back(std::string("\0\0\xc0\x7f", 4));
  return result;
}

}  // namespace linnet::fuzz
