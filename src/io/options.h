#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/settings.h"
#include "io/json_fwd.h"

namespace linnet {

/// The most that a file of settings may hold.
inline constexpr std::size_t most_settings_bytes = 1 << 20;

/// Options that are defined once and serve the command line, the TOML file and the saved JSON. Keys are
/// dotted ("model.layers"): tables of TOML, nested objects of JSON.
///
/// Whatever sets a value throws UsageError, one sentence with where it came from, the value found and the
/// values expected; for an unknown key with the nearest known one. Values set before the error stay set.
class Options : public Settings {
 public:
  using Settings::add;
  void add(std::string key, std::int64_t& value, std::string help, std::int64_t least,
           std::int64_t most) override;
  void add(std::string key, double& value, std::string help, double least, double most) override;
  void add(std::string key, bool& value, std::string help) override;
  void add(std::string key, std::string& value, std::string help,
           std::vector<std::string> choices = {}) override;

  /// From text, as on the command line. Integers may be written 1e3 where that is whole; booleans are true
  /// and false.
  void set(const std::string& key, const std::string& text);
  /// The same from "key=value".
  void apply_assignment(const std::string& assignment);

  /// Numbers, booleans and text must be given as such; a whole number serves for a number of either kind.
  void parse_toml(std::string_view text, const std::string& origin);
  void load_json(const Json& json, const std::string& origin);
  /// Throws UsageError where a present value could not be set. `origin` stands for the source.
  void check(const std::string& origin) const;

  /// Nested by the dots of the keys, in the order added. `load_json` takes it back.
  Json to_json() const;

  /// What help and documentation print: type is "integer", "number", "boolean" or "text", value the present
  /// one.
  struct Row {
    std::string key, type, value, range, help;
  };
  std::vector<Row> rows() const;

 private:
  struct Integer {
    std::int64_t* value;
    std::int64_t least, most;
  };
  struct Number {
    double* value;
    double least, most;
  };
  struct Boolean {
    bool* value;
  };
  struct Text {
    std::function<std::string()> get;
    std::function<void(const std::string&)> set;
    std::vector<std::string> choices;
  };
  struct Option {
    std::string key, help;
    std::variant<Integer, Number, Boolean, Text> target;

    Json value() const;
    std::string expected() const;
    void assign(const Json& value, const std::string& found, const std::string& origin) const;
  };
  /// Where a key's value comes from, for errors.
  using Origin = std::function<std::string(const std::string& key)>;

  void add_choice(std::string key, Choice value, std::string help, std::vector<std::string> names) override;
  void add_option(Option option);
  const Option* find(const std::string& key) const;
  bool is_group(const std::string& key) const;
  [[noreturn]] void fail_unknown(const std::string& key, const std::string& origin) const;
  void load_object(const Json& object, const std::string& prefix, const Origin& origin_of);

  std::vector<Option> options_;
};

}  // namespace linnet
