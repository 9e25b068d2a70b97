#include "io/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>

#include "base/fail.h"
#include "base/names.h"

namespace linnet {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t longest_header = 1 << 16;

// Reads the literal of a Python dictionary with the members of a NumPy header.
class Literal {
 public:
  Literal(std::string_view text, const std::string& origin) : text_(text), rest_(text), origin_(origin) {}

  bool take(std::string_view token) {
    skip_blanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) damaged();
  }
  std::string_view quoted() {
    if (!take("'")) {
      // A list of fields, where the type of plain numbers is quoted.
      if (take("[")) fail("npy", "{}: expected an array of plain numbers, got one of records", origin_);
      damaged();
    }
    const std::size_t end = rest_.find('\'');
    if (end == std::string_view::npos) damaged();
    const std::string_view result = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return result;
  }
  bool boolean() {
    if (take("True")) return true;
    expect("False");
    return false;
  }
  Shape shape() {
    Shape result;
    expect("(");
    while (!take(")")) {
      skip_blanks();
      std::int64_t size = 0;
      const auto [next, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc() || size < 0 || result.size() == most_dimensions) damaged();
      rest_.remove_prefix(static_cast<std::size_t>(next - rest_.data()));
      result.push_back(size);
      if (!take(",")) {
        expect(")");
        break;
      }
    }
    return result;
  }
  bool at_end() const { return rest_.find_first_not_of(" \n") == std::string_view::npos; }
  [[noreturn]] void damaged() const {
    fail("npy",
         "{}: expected a header with the members descr, fortran_order and shape, got one that is damaged at "
         "its byte {}",
         origin_, text_.size() - rest_.size());
  }

 private:
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }

  static constexpr std::size_t most_dimensions = 32;
  std::string_view text_, rest_;
  const std::string& origin_;
};

void take_type(NpyHeader& header, std::string_view descr, const std::string& origin) {
  const auto refuse = [&] {
    fail("npy", "{}: expected little-endian numbers such as '<i4', got '{}'", origin, shortened(descr));
  };
  if (descr.size() < 3 || std::string_view("<|=").find(descr[0]) == std::string_view::npos ||
      std::string_view("iufb").find(descr[1]) == std::string_view::npos)
    refuse();
  const auto [next, error] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), header.bytes);
  if (error != std::errc() || next != descr.data() + descr.size() || header.bytes < 1 || header.bytes > 16 ||
      (descr[0] == '|' && header.bytes > 1))
    refuse();
  header.kind = descr[1];
}

}  // namespace

NpyHeader read_npy_header(const InputFile& file, const std::string& origin) {
  constexpr std::size_t version_at = magic.size(), length_at = version_at + 2;
  std::array<char, length_at + 4> start{};
  const auto known = std::min<std::uint64_t>(start.size(), file.size());
  file.read(0, std::as_writable_bytes(std::span(start)).first(known));
  if (!std::string_view(start.data(), known).starts_with(magic) || known < start.size())
    fail("npy", "{}: expected a NumPy file, got {} bytes that do not begin as one", origin, file.size());
  const auto byte = [&](std::size_t at) { return std::uint64_t{static_cast<std::uint8_t>(start[at])}; };
  const std::uint64_t version = byte(version_at);
  if (version < 1 || version > 3)
    fail("npy", "{}: expected a NumPy file of version 1, 2 or 3, got {}", origin, version);
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | byte(length_at + i);
  NpyHeader header;
  header.data = length_at + length_bytes + length;
  if (length > longest_header || header.data > file.size())
    fail("npy", "{}: expected a header of at most {} bytes, got {}: the file is truncated or damaged", origin,
         std::min(longest_header, file.size() - length_at - length_bytes), length);
  std::string text(length, '\0');
  file.read(length_at + length_bytes, std::as_writable_bytes(std::span(text)));

  Literal literal(text, origin);
  bool has_type = false, has_order = false, has_shape = false, fortran = false;
  literal.expect("{");
  while (!literal.take("}")) {
    const std::string_view key = literal.quoted();
    literal.expect(":");
    if (key == "descr" && !has_type) {
      take_type(header, literal.quoted(), origin);
      has_type = true;
    } else if (key == "fortran_order" && !has_order) {
      fortran = literal.boolean();
      has_order = true;
    } else if (key == "shape" && !has_shape) {
      header.shape = literal.shape();
      has_shape = true;
    } else {
      literal.damaged();
    }
    if (!literal.take(",")) {
      literal.expect("}");
      break;
    }
  }
  if (!has_type || !has_order || !has_shape || !literal.at_end()) literal.damaged();
  if (fortran && header.shape.size() > 1)
    fail("npy", "{}: expected an array in C order, got one in Fortran order", origin);
  std::int64_t size = 0;
  try {
    size = checked_size(header.shape, header.bytes);
  } catch (const Error&) {
    fail("npy", "{}: expected a shape of fewer than 2^63 bytes, got {}", origin, to_string(header.shape));
  }
  const std::uint64_t expected = static_cast<std::uint64_t>(size) * header.bytes;
  if (expected != file.size() - header.data)
    fail("npy", "{}: expected {} bytes behind the header for shape {}, got {}", origin, expected,
         to_string(header.shape), file.size() - header.data);
  return header;
}

}  // namespace linnet
