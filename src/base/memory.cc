#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/fail.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

constexpr double unlimited = std::numeric_limits<double>::infinity();

/// The number behind a key at the start of a line; `key` includes the colon or what else ends it.
std::optional<double> number_of(const fs::path& file, std::string_view key) {
  std::ifstream lines(file);
  std::string word;
  double number = 0;
  while (lines >> word) {
    if (word == key && lines >> number) return number;
    lines.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

/// The only number of a file; nothing where it holds a word, as memory.max does ("max").
std::optional<double> number_in(const fs::path& file) {
  std::ifstream text(file);
  double number = 0;
  if (text >> number) return number;
  return std::nullopt;
}

/// How the two versions of control groups call what they tell.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // in memory.stat
};
constexpr GroupFiles version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles version_2 = {"memory.max", "memory.current", "inactive_file"};

/// What a group lets its processes take beyond what they have.
double left_in_group(const fs::path& group, const GroupFiles& files) {
  const std::optional<double> limit = number_in(group / files.limit), usage = number_in(group / files.usage);
  if (!limit || !usage) return unlimited;
  const double cache = number_of(group / "memory.stat", files.reclaimable).value_or(0);
  return std::max(0.0, *limit - std::max(0.0, *usage - cache));
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

/// A hierarchy of groups that limits memory, as it is mounted.
struct Mount {
  fs::path root;   // the group that is mounted
  fs::path point;  // where
};

/// The mount of the first line of /proc/self/mountinfo with this type of file system and, for version 1, this
/// controller. Its fields are: number, parent, device, root, mount point, options …, "-", type, source,
/// options.
std::optional<Mount> mount_of(const fs::path& root, const std::string& type, const std::string& controller) {
  std::ifstream lines(root / "proc/self/mountinfo");
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = split(line, ' ');
    const auto dash = std::ranges::find(fields, "-");
    if (fields.size() < 5 || fields.end() - dash < 4 || dash[1] != type) continue;
    if (controller.empty() || contains(split(dash[3], ','), controller)) return Mount{fields[3], fields[4]};
  }
  return std::nullopt;
}

/// The least that the group and those above it leave, up to the one that is mounted.
double left_in_groups(const fs::path& root, const fs::path& group, const Mount& mount,
                      const GroupFiles& files) {
  // Seen from inside a container the group may lie outside of what is mounted: the mount is the nearest then.
  fs::path inside = group.lexically_relative(mount.root);
  if (inside.empty() || *inside.begin() == "..") inside = ".";
  const fs::path top = root / mount.point.relative_path();
  double left = left_in_group(top, files);
  fs::path folder = top;
  for (const fs::path& part : inside) left = std::min(left, left_in_group(folder /= part, files));
  return left;
}

}  // namespace

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  // What would be printed as 1e+03 is one of the next unit.
  while (bytes >= (unit == 0 ? 1000 : 999.5) && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.3g} {}", bytes, units[unit]);
}

double available_memory(const fs::path& root) {
  double left = unlimited;
  if (const auto kilobytes = number_of(root / "proc/meminfo", "MemAvailable:")) left = 1024 * *kilobytes;
  // A line is "number:controllers:group"; version 2 has the number 0 and no controllers.
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    const bool unified = controllers.empty();
    if (!unified && !contains(split(controllers, ','), "memory")) continue;
    if (const auto mount = mount_of(root, unified ? "cgroup2" : "cgroup", unified ? "" : "memory"))
      left = std::min(left, left_in_groups(root, group, *mount, unified ? version_2 : version_1));
  }
  return left;
}

void require_memory(const std::string& what, double bytes) {
  const double available = available_memory();
  if (bytes <= available) return;
  fail<OutOfMemoryError>(
      "memory", "expected {} to fit into the {} of memory that are free, got one that needs at least {}",
      what, bytes_text(available), bytes_text(bytes));
}

}  // namespace linnet
