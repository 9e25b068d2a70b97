#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// The names in a value of data.path, data.validation or data.test: the value itself where something of that
/// name exists, otherwise its parts between commas, without the blanks around them. None for an empty value.
std::vector<std::string> names_in(const std::string& value);

/// The files of such a value, each once. A name that exists, or is without * and ?, stands for itself.
/// Another one stands for the files whose names match, as in a shell, sorted by their bytes; folders among
/// them are left out.
std::vector<std::filesystem::path> files_found(const std::string& value);

/// The same for data of that kind. Throws UsageError naming `key` for an empty value, and Error for a name
/// that nothing matches.
std::vector<std::filesystem::path> files_named(const char* key, const std::string& value,
                                               const std::string& kind);

/// Whether an entry of a folder is a file, or a link to nothing, which is named when it is read. Pipes and
/// devices are none: they would be waited for.
bool is_file_of_folder(const std::filesystem::directory_entry& entry);

/// The value with absolute names. Throws UsageError where it would then be parted at a comma in the name of a
/// folder.
std::string absolute_names(const std::string& value);

/// Throws UsageError where `options` have no length of an example, which data of that kind need.
void check_example_length(const DataOptions& options, std::string_view kind);

/// Throws Error for the bytes of a binary file, which are known by a byte of 0. `advice` ends the sentence.
void check_text(std::string_view bytes, const std::string& origin, const char* advice = "");

/// A line of a text file, parted at its first tab.
struct TabbedLine {
  std::string before, after;
  std::int64_t number = 0;  ///< of the line, from 1
};

/// The lines of a text file that are not empty, without the carriage return of a line's end. `columns` says
/// in errors what stands before and after the tab. A line without a tab has nothing before it, if `optional`.
/// Throws Error for a binary file, for a line without a tab otherwise, and for a file without lines.
std::vector<TabbedLine> read_tabbed_lines(const std::filesystem::path& path, const char* columns,
                                          bool optional = false);

/// Whether an example of a list is held out for validation: every tenth is.
constexpr std::size_t held_out_every = 10;
constexpr bool is_held_out(std::size_t index) { return index % held_out_every == held_out_every - 1; }

/// Removes the examples of a list that are held out, and returns them.
template <class T>
std::vector<T> take_held_out(std::vector<T>& all) {
  std::vector<T> kept, taken;
  for (std::size_t i = 0; i < all.size(); ++i) (is_held_out(i) ? taken : kept).push_back(std::move(all[i]));
  all = std::move(kept);
  return taken;
}

/// Contents of the files of each part; empty for parts that are not opened or that the data do not have.
template <class Contents>
struct PartContents {
  std::optional<Contents> training, validation, test;
};

/// Reads the contents of the wanted parts with `read(key, value)`. Where there are no files for validation,
/// `hold_out(contents)` removes a part of the contents of data.path and returns it. No file that only parts
/// need that are not wanted is read, but for data.path with `names`, which then is there whichever parts are
/// wanted, whole where it is not divided for any of them.
template <class Read, class HoldOut>
auto read_parts(const DataOptions& options, const Parts& parts, const Read& read, const HoldOut& hold_out,
                bool names = false) {
  PartContents<std::invoke_result_t<Read, const char*, const std::string&>> result;
  const bool own_files = !options.validation.empty();
  if (names || parts.training || (parts.validation && !own_files)) {
    auto all = read("data.path", options.path);
    if (!own_files && (parts.training || parts.validation)) {
      auto held_out = hold_out(all);
      if (names || parts.validation) result.validation = std::move(held_out);
    }
    if (names || parts.training) result.training = std::move(all);
  }
  if (parts.validation && own_files) result.validation = read("data.validation", options.validation);
  if (parts.test && !options.test.empty()) result.test = read("data.test", options.test);
  return result;
}

}  // namespace linnet
