#include "io/json.h"

#include <algorithm>
#include <set>

#include "base/fail.h"
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
  return what;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& origin) {
  // The parser itself would keep the last of several members of one name.
  std::vector<std::set<std::string>> names;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    // Who reads the value may recurse into it.
    constexpr int deepest = 100;
    if (depth > deepest) fail("json", "{}: expected at most {} levels of nesting, got more", origin, deepest);
    if (event == Json::parse_event_t::object_start) {
      names.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      names.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const std::string& name = parsed.get_ref<const std::string&>();
      if (!names.back().insert(name).second)
        fail("json", "{}: expected every name once in an object, got \"{}\" twice", origin, name);
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::parse_error& error) {
    fail("json", "{}, {}: {}", origin, position(text, error.byte == 0 ? 0 : error.byte - 1),
         explanation(error.what()));
  } catch (const Json::exception& error) {
    fail("json", "{}: {}", origin, explanation(error.what()));
  }
}

Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

void write_json(const std::filesystem::path& path, const Json& value) {
  write_file_atomically(path, value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace linnet
