#include "io/json.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/names.h"
#include "io/file.h"

namespace linnet {
namespace {

// "line 3, column 7" of the byte with that index.
std::string position(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const std::size_t newline = before.rfind('\n');
  return fmt::format("line {}, column {}", std::count(before.begin(), before.end(), '\n') + 1,
                     before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1);
}

// What the parser says, without its own label and position and without bytes that no terminal shows.
std::string explanation(std::string what) {
  for (const std::string_view mark : {"] ", ": "})
    if (const std::size_t at = what.find(mark); at != std::string::npos) what.erase(0, at + mark.size());
  for (char& c : what)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return shortened(what, 300);
}

// Builds the value that the parser reads. The parser's own builder compares every name with all before it,
// and would keep the last of several members of one name.
class Builder {
 public:
  Builder(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  Json release() { return std::move(root_); }

  // What the parser calls.
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // texts have none
  bool start_object(std::size_t) {
    names_.emplace_back();
    return open(Json::object());
  }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() {
    names_.pop_back();
    return end_array();
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool key(std::string& name) {
    if (!names_.back().insert(name).second)
      fail("json", "{}: expected every name once in an object, got \"{}\" twice", origin_, shortened(name));
    name_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const Json::exception& error) {
    fail("json", "{}, {}: {}", origin_, position(text_, byte == 0 ? 0 : byte - 1), explanation(error.what()));
  }

 private:
  // The value stays where it is while it is open: nothing is added beside it before its end.
  Json& place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_object())
      append_member(parent, name_, std::move(value));
    else
      parent.get_ref<Json::array_t&>().push_back(std::move(value));
    return parent.is_object() ? parent.get_ref<Json::object_t&>().back().second
                              : parent.get_ref<Json::array_t&>().back();
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json empty) {
    // Who reads the value may recurse into it.
    constexpr std::size_t deepest = 100;
    if (open_.size() >= deepest)
      fail("json", "{}: expected at most {} levels of nesting, got more", origin_, deepest);
    open_.push_back(&place(std::move(empty)));
    return true;
  }

  std::string_view text_;
  const std::string& origin_;
  Json root_;
  std::vector<Json*> open_;                             // from the root to the innermost
  std::vector<std::unordered_set<std::string>> names_;  // of the open objects
  std::string name_;                                    // of the member whose value comes next
};

}  // namespace

void append_member(Json& object, const std::string& name, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(name, std::move(value));
}

Json parse_json(std::string_view text, const std::string& origin) {
  // The library would take it for the end of the text.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    fail("json", "{}, {}: expected text, got a byte of 0", origin, position(text, at));
  Builder builder(text, origin);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.release();
}

Json read_json(const std::filesystem::path& path) {
  constexpr std::size_t most_bytes = std::size_t{64} << 20;
  return parse_json(read_regular_file(path, most_bytes), path.string());
}

std::string as_json_text(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

std::string as_line(const std::string& text) {
  std::string line = printable(as_json_text(text));
  std::ranges::replace_if(
      line, [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return line;
}

std::string printable(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]),
               next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    if ((byte < ' ' && byte != '\t' && byte != '\n') || byte == 0x7f) text[i] = ' ';
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) text.replace(i, 2, " ");
  }
  return text;
}

std::string json_text(const Json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_json(const std::filesystem::path& path, const Json& value) {
  write_file_atomically(path, json_text(value));
}

}  // namespace linnet
