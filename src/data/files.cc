#include "data/files.h"

#include <glob.h>

#include <algorithm>
#include <new>
#include <set>
#include <system_error>

#include "base/fail.h"
#include "base/lists.h"
#include "io/file.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& name) {
  std::error_code ignored;
  return fs::exists(name, ignored);
}

bool is_pattern(const std::string& name) { return name.find_first_of("*?") != std::string::npos; }

// The pattern for glob(3), to which brackets and backslashes mean something too.
std::string escaped(const std::string& pattern) {
  std::string result;
  for (const char letter : pattern) {
    if (letter == '[')
      result += "[[]";
    else if (letter == '\\')
      result += "\\\\";
    else
      result += letter;
  }
  return result;
}

std::vector<fs::path> matches_of(const std::string& pattern) {
  struct Found : glob_t {
    Found() : glob_t{} {}
    ~Found() { globfree(this); }
  } found;
  if (::glob(escaped(pattern).c_str(), GLOB_NOSORT, nullptr, &found) == GLOB_NOSPACE) throw std::bad_alloc();
  std::vector<fs::path> files;
  for (std::size_t i = 0; i < found.gl_pathc; ++i) {
    std::error_code ignored;
    if (!fs::is_directory(found.gl_pathv[i], ignored)) files.emplace_back(found.gl_pathv[i]);
  }
  std::ranges::sort(files, {}, [](const fs::path& path) -> const std::string& { return path.native(); });
  return files;
}

std::vector<fs::path> files_of_name(const std::string& name) {
  return exists(name) || !is_pattern(name) ? std::vector<fs::path>{name} : matches_of(name);
}

}  // namespace

std::vector<std::string> names_in(const std::string& value) {
  if (value.empty()) return {};
  if (exists(value)) return {value};
  std::vector<std::string> names = comma_separated(value);
  std::erase(names, "");
  return names;
}

std::vector<fs::path> files_found(const std::string& value) {
  std::vector<fs::path> files;
  std::set<fs::path> seen;
  for (const std::string& name : names_in(value))
    for (fs::path& file : files_of_name(name))
      if (seen.insert(file).second) files.push_back(std::move(file));
  return files;
}

std::vector<fs::path> files_named(const char* key, const std::string& value, const std::string& kind) {
  const std::vector<std::string> names = names_in(value);
  if (names.empty()) fail<UsageError>("data", "expected the path of a file of {} in {}, got none", kind, key);
  for (const std::string& name : names)
    if (files_of_name(name).empty()) fail("data", "expected files that match {} in {}, got none", name, key);
  return files_found(value);
}

void check_example_length(const DataOptions& options, std::string_view kind) {
  if (options.length >= 1) return;
  fail<UsageError>("data",
                   "expected data.length of at least 1 for {}, got {}: a configuration without it is for "
                   "another kind of data",
                   kind, options.length);
}

void check_text(std::string_view bytes, const std::string& origin, const char* advice) {
  if (const std::size_t zero = bytes.find('\0'); zero != std::string_view::npos)
    fail("data", "{}: expected text, got a binary file, whose byte {} is 0{}", origin, zero, advice);
}

std::vector<TabbedLine> read_tabbed_lines(const fs::path& path, const char* columns, bool optional) {
  const std::string bytes = read_file(path), origin = path.string();
  check_text(bytes, origin);
  const std::string_view text = without_byte_order_mark(bytes);
  std::vector<TabbedLine> lines;
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos && !optional)
      fail("data", "{}: expected {} with a tab between them in line {}, got no tab", origin, columns, number);
    if (tab == std::string_view::npos)
      lines.push_back({"", std::string(line), number});
    else
      lines.push_back({std::string(line.substr(0, tab)), std::string(line.substr(tab + 1)), number});
  }
  if (lines.empty()) fail("data", "{}: expected lines of {}, got none", origin, columns);
  return lines;
}

bool is_file_of_folder(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_regular_file(ignored) || !entry.exists(ignored);
}

std::string absolute_names(const std::string& value) {
  std::string result;
  const std::vector<std::string> names = names_in(value);
  for (const std::string& name : names) {
    const std::string absolute = absolute_path(name).string();
    if (absolute.find(',') != std::string::npos && (names.size() > 1 || !exists(absolute)))
      fail<UsageError>("data",
                       "expected names without commas where several files or a pattern are given, got {} in "
                       "a folder whose name has one",
                       absolute);
    if (!result.empty()) result += ',';
    result += absolute;
  }
  return result;
}

}  // namespace linnet
