#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace linnet {

/// Takes the settings of a configuration one by one: a dotted key ("model.layers"), the variable that holds
/// the value and must outlive this object, a line of help, and the values that are allowed. What a variable
/// holds when it is added is the default. Whoever owns a configuration describes it once, for every form in
/// which it is written or read (io/options.h).
class Settings {
 public:
  virtual ~Settings() = default;

  virtual void add(std::string key, std::int64_t& value, std::string help, std::int64_t least,
                   std::int64_t most) = 0;
  virtual void add(std::string key, double& value, std::string help, double least, double most) = 0;
  virtual void add(std::string key, bool& value, std::string help) = 0;
  /// Without `choices`, any text.
  virtual void add(std::string key, std::string& value, std::string help,
                   std::vector<std::string> choices = {}) = 0;

  /// An enumeration: `names` are those of its values 0, 1, …
  template <class Enum>
  requires std::is_enum_v<Enum>
  void add(std::string key, Enum& value, std::string help, std::vector<std::string> names) {
    add_choice(std::move(key),
               {[&value] { return static_cast<std::size_t>(value); },
                [&value](std::size_t index) { value = static_cast<Enum>(index); }},
               std::move(help), std::move(names));
  }

 protected:
  /// The index of the chosen name.
  struct Choice {
    std::function<std::size_t()> get;
    std::function<void(std::size_t)> set;
  };
  virtual void add_choice(std::string key, Choice value, std::string help,
                          std::vector<std::string> names) = 0;
};

}  // namespace linnet
