#include "io/options.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cassert>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/names.h"
#include "io/file.h"
#include "io/json.h"

namespace linnet {
namespace {

constexpr const char* operation = "options";
constexpr std::size_t deepest = 100;

template <class... Case>
struct Overloaded : Case... {
  using Case::operator()...;
};
template <class... Case>
Overloaded(Case...) -> Overloaded<Case...>;

// The whole of `text` as a number.
template <class T>
std::optional<T> number_in(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || next != end) return std::nullopt;
  return value;
}

std::optional<std::int64_t> integer_in(const Json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX})
    return std::nullopt;
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::abs(number) < 0x1p63) || std::trunc(number) != number) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

// A value as an error shows it.
std::string shown(const Json& value) {
  if (value.is_object()) return "a table";
  if (value.is_array()) return "a list";
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

// The line of the byte `at`, from 1.
std::int64_t line_at(std::string_view text, std::size_t at) {
  return std::ranges::count(text.substr(0, at), '\n') + 1;
}

// Throws UsageError where the bracket at byte `at`, which opens the header of a table, is followed by neither
// a name nor a bracket: the library takes it for granted that one of them follows.
void check_header(std::string_view text, std::size_t at, const std::string& file) {
  constexpr std::string_view blank = " \t";
  std::size_t name = text.find_first_not_of(blank, at + 1);
  if (name != std::string_view::npos && text[name] == '[') name = text.find_first_not_of(blank, name + 1);
  if (name == std::string_view::npos || std::isalnum(static_cast<unsigned char>(text[name])) != 0 ||
      std::string_view("_-\"']").find(text[name]) != std::string_view::npos)
    return;
  fail<UsageError>(operation, "{}, line {}: expected the name of a table behind [, got none", file,
                   line_at(text, name));
}

// Throws UsageError where tables lie deeper in each other than `deepest`: the library would recurse through
// them when it frees them. Counts the dots of a key and the brackets around it, which is at least the depth.
// Also checks the headers of tables, and that what is neither a string nor a comment is ASCII, which the
// library takes for granted in some places.
void check_structure(std::string_view text, const std::string& file) {
  std::vector<std::size_t> inside = {0};  // dots since the last key began, for every open bracket
  std::size_t depth = 0;
  const auto skip_to = [&](std::size_t at, std::string_view end, bool escapes) {
    while (at < text.size() && !text.substr(at).starts_with(end)) at += escapes && text[at] == '\\' ? 2 : 1;
    return at + end.size();
  };
  const auto forget_key = [&] { depth -= std::exchange(inside.back(), 0); };
  bool line_begins = true;  // nothing but blanks since the last newline
  for (std::size_t at = text.size() - without_byte_order_mark(text).size(); at < text.size();) {
    const char c = text[at];
    if (c == '[' && line_begins && inside.size() == 1) check_header(text, at, file);
    line_begins = c == '\n' || (line_begins && (c == ' ' || c == '\t'));
    if (c == '#') {
      at = skip_to(at, "\n", false) - 1;
    } else if (c == '"' || c == '\'') {
      const std::string quotes(3, c);
      const bool several = text.substr(at).starts_with(quotes);
      at = skip_to(at + (several ? 3 : 1), several ? std::string_view(quotes) : text.substr(at, 1), c == '"');
      // Two quotes more may stand before the three that end it.
      for (int more = 0; several && more < 2 && at < text.size() && text[at] == c; ++more) ++at;
    } else {
      if (static_cast<unsigned char>(c) > 127)
        fail<UsageError>(operation,
                         "{}, line {}: expected ASCII outside strings and comments, got byte {:#04x}", file,
                         line_at(text, at), static_cast<unsigned char>(c));
      if (c == '.') ++inside.back(), ++depth;
      if (c == '[' || c == '{') inside.push_back(1), ++depth;
      if ((c == ']' || c == '}') && inside.size() > 1) forget_key(), inside.pop_back();
      if (c == ',' || c == '\n') forget_key();
      ++at;
    }
    if (depth > deepest)
      fail<UsageError>(operation, "{}: expected at most {} levels of tables, got more", file, deepest);
  }
}

// The table as JSON, and for every key in it "FILE:LINE". Dates have no counterpart in JSON, nor among
// options.
Json from_toml(const toml::table& table, const std::string& prefix, const std::string& file,
               std::map<std::string, std::string>& lines) {
  Json result = Json::object();
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    const std::string line = fmt::format("{}:{}", file, node.source().begin.line);
    lines.emplace(key, line);
    Json value;
    if (const toml::table* inner = node.as_table())
      value = from_toml(*inner, key + ".", file, lines);
    else if (node.is_array())
      value = Json::array();
    else if (const auto* boolean = node.as_boolean())
      value = boolean->get();
    else if (const auto* integer = node.as_integer())
      value = integer->get();
    else if (const auto* number = node.as_floating_point())
      value = number->get();
    else if (const auto* text = node.as_string())
      value = text->get();
    else
      fail<UsageError>(operation, "{}: {}: expected a number, true, false or text, got a date or time", line,
                       shortened(key));
    append_member(result, std::string(name.str()), std::move(value));
  }
  return result;
}

}  // namespace

void Options::add(std::string key, std::int64_t& value, std::string help, std::int64_t least,
                  std::int64_t most) {
  add_option({std::move(key), std::move(help), Integer{&value, least, most}});
}

void Options::add(std::string key, double& value, std::string help, double least, double most) {
  add_option({std::move(key), std::move(help), Number{&value, least, most}});
}

void Options::add(std::string key, bool& value, std::string help) {
  add_option({std::move(key), std::move(help), Boolean{&value}});
}

void Options::add(std::string key, std::string& value, std::string help, std::vector<std::string> choices) {
  add_option({std::move(key), std::move(help),
              Text{[&value] { return value; }, [&value](const std::string& text) { value = text; },
                   std::move(choices)}});
}

void Options::add_choice(std::string key, Choice value, std::string help, std::vector<std::string> names) {
  const auto name = [get = std::move(value.get), names] {
    const std::size_t index = get();
    return index < names.size() ? names[index] : fmt::format("number {}", index);
  };
  const auto choose = [set = std::move(value.set), names](const std::string& chosen) {
    set(static_cast<std::size_t>(std::ranges::find(names, chosen) - names.begin()));
  };
  add_option({std::move(key), std::move(help), Text{name, choose, std::move(names)}});
}

void Options::add_option(Option option) {
  assert(find(option.key) == nullptr && !is_group(option.key));
  options_.push_back(std::move(option));
}

void Options::set(const std::string& key, const std::string& text) {
  constexpr const char* origin = "settings";
  const Option* option = find(key);
  if (option == nullptr) fail_unknown(key, origin);
  // What is none of these stays text, which only options of text take.
  Json value = text;
  if (!std::holds_alternative<Text>(option->target)) {
    if (text == "true" || text == "false")
      value = text == "true";
    else if (const auto integer = number_in<std::int64_t>(text))
      value = *integer;
    else if (const auto number = number_in<double>(text))
      value = *number;
  }
  option->assign(value, fmt::format("\"{}\"", shortened(text)), origin);
}

void Options::apply_assignment(const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    fail<UsageError>(operation, "--set: expected key=value, got \"{}\"", shortened(assignment));
  set(assignment.substr(0, equals), assignment.substr(equals + 1));
}

void Options::parse_toml(std::string_view text, const std::string& origin) {
  std::map<std::string, std::string> lines;
  Json values;
  try {
    check_structure(text, origin);
    values = from_toml(toml::parse(text, origin), "", origin, lines);
  } catch (const toml::parse_error& error) {
    fail<UsageError>(operation, "{}, line {}, column {}: {}", origin, error.source().begin.line,
                     error.source().begin.column, error.description());
  }
  load_object(values, "", [&](const std::string& key) { return lines.at(key); });
}

void Options::load_json(const Json& json, const std::string& origin) {
  if (!json.is_object())
    fail<UsageError>(operation, "{}: expected an object of options, got {}", origin, shown(json));
  load_object(json, "", [&](const std::string&) { return origin; });
}

void Options::check(const std::string& origin) const {
  for (const Option& option : options_) {
    const Json value = option.value();
    option.assign(value, shown(value), origin);
  }
}

void Options::load_object(const Json& object, const std::string& prefix, const Origin& origin_of) {
  for (const auto& [name, value] : object.items()) {
    const std::string key = prefix + name;
    if (name.find('.') != std::string::npos)
      fail<UsageError>(operation, "{}: expected keys inside their tables, got a name with a dot, \"{}\"",
                       origin_of(key), shortened(name));
    if (const Option* option = find(key))
      option->assign(value, shown(value), origin_of(key));
    else if (!is_group(key))
      fail_unknown(key, origin_of(key));
    else if (!value.is_object())
      fail<UsageError>(operation, "{}: {}: expected a table of options, got {}", origin_of(key), key,
                       shown(value));
    else
      load_object(value, key + ".", origin_of);
  }
}

const Options::Option* Options::find(const std::string& key) const {
  const auto found = std::ranges::find(options_, key, &Option::key);
  return found == options_.end() ? nullptr : &*found;
}

bool Options::is_group(const std::string& key) const {
  return std::ranges::any_of(options_,
                             [&](const Option& option) { return option.key.starts_with(key + "."); });
}

void Options::fail_unknown(const std::string& key, const std::string& origin) const {
  std::vector<std::string> keys, parts, names;
  for (const Option& option : options_) {
    keys.push_back(option.key);
    parts.push_back(last_part(option.key));
    // And the tables that hold it.
    for (std::size_t dot = option.key.find('.'); dot != std::string::npos;
         dot = option.key.find('.', dot + 1))
      if (const std::string table = option.key.substr(0, dot); table != key) names.push_back(table);
  }
  names.insert(names.end(), keys.begin(), keys.end());
  std::string nearest = nearest_name(key, names);
  // A key under the wrong table, or under none.
  const std::string part = nearest_name(last_part(key), parts);
  if (nearest.empty() && !part.empty())
    nearest = keys[static_cast<std::size_t>(std::ranges::find(parts, part) - parts.begin())];
  if (nearest.empty())
    fail<UsageError>(operation, "{}: expected a known key, got \"{}\"", origin, shortened(key));
  fail<UsageError>(operation, "{}: expected a known key, got \"{}\"; did you mean \"{}\"?", origin,
                   shortened(key), nearest);
}

std::string Options::Option::expected() const {
  return std::visit(
      Overloaded{[](const Integer& x) { return fmt::format("an integer from {} to {}", x.least, x.most); },
                 [](const Number& x) { return fmt::format("a number from {} to {}", x.least, x.most); },
                 [](const Boolean&) { return std::string("true or false"); },
                 [](const Text& x) {
                   return x.choices.empty() ? std::string("text")
                                            : fmt::format("one of {}", fmt::join(x.choices, ", "));
                 }},
      target);
}

void Options::Option::assign(const Json& value, const std::string& found, const std::string& origin) const {
  const bool assigned = std::visit(
      Overloaded{[&](const Integer& x) {
                   const auto integer = integer_in(value);
                   const bool fits = integer && *integer >= x.least && *integer <= x.most;
                   if (fits) *x.value = *integer;
                   return fits;
                 },
                 [&](const Number& x) {
                   const double number = value.is_number() ? value.get<double>() : std::nan("");
                   const bool fits = std::isfinite(number) && number >= x.least && number <= x.most;
                   if (fits) *x.value = number;
                   return fits;
                 },
                 [&](const Boolean& x) {
                   if (value.is_boolean()) *x.value = value.get<bool>();
                   return value.is_boolean();
                 },
                 [&](const Text& x) {
                   const bool fits = value.is_string() &&
                                     (x.choices.empty() ||
                                      std::ranges::count(x.choices, value.get_ref<const std::string&>()) > 0);
                   if (fits) x.set(value.get<std::string>());
                   return fits;
                 }},
      target);
  if (assigned) return;
  std::string hint;
  if (const Text* text = std::get_if<Text>(&target); text != nullptr && value.is_string())
    hint = nearest_name(value.get<std::string>(), text->choices);
  if (!hint.empty()) hint = fmt::format("; did you mean \"{}\"?", hint);
  fail<UsageError>(operation, "{}: {}: expected {}, got {}{}", origin, key, expected(), found, hint);
}

Json Options::Option::value() const {
  return std::visit(
      Overloaded{[](const auto& x) { return Json(*x.value); }, [](const Text& x) { return Json(x.get()); }},
      target);
}

Json Options::to_json() const {
  Json result = Json::object();
  for (const Option& option : options_) {
    Json* place = &result;
    std::string_view rest = option.key;
    for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      place = &(*place)[std::string(rest.substr(0, dot))];
      rest.remove_prefix(dot + 1);
    }
    (*place)[std::string(rest)] = option.value();
  }
  return result;
}

std::vector<Options::Row> Options::rows() const {
  constexpr const char* types[] = {"integer", "number", "boolean", "text"};
  std::vector<Row> rows;
  for (const Option& option : options_) {
    const Json value = option.value();
    const std::string range =
        std::visit(Overloaded{[](const Integer& x) { return fmt::format("{} … {}", x.least, x.most); },
                              [](const Number& x) { return fmt::format("{} … {}", x.least, x.most); },
                              [](const Boolean&) { return std::string("true, false"); },
                              [](const Text& x) { return fmt::format("{}", fmt::join(x.choices, ", ")); }},
                   option.target);
    rows.push_back({option.key, types[option.target.index()],
                    value.is_string() ? value.get<std::string>() : shown(value), range, option.help});
  }
  return rows;
}

}  // namespace linnet
