#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace linnet {

/// Steps begin … end − 1 of a source, such as a file.
struct Stretch {
  std::size_t source = 0;
  std::int64_t begin = 0, end = 0;
};

/// `length` steps of a source from `begin` on. The targets of steps counts_from … end − 1 count.
struct Window {
  std::size_t source = 0;
  std::int64_t begin = 0;
  std::int64_t counts_from = 0;
  std::int64_t end = 0;  ///< of the stretch; that of the window may lie before or behind it
};

/// Windows of `length` steps over stretches of several sources. The sources have at least `length` steps.
class Windows {
 public:
  Windows() = default;

  /// Every window inside a stretch; all its steps count. A stretch has at least `length` steps.
  static Windows every(std::vector<Stretch> stretches, std::int64_t length);

  /// Windows of which every step of the stretches, none of them empty, counts in exactly one. A step that
  /// counts has at least ⌈length / 2⌉ steps of the same window before it, which may lie before the stretch,
  /// or none where length is 1. Only in the first window of a stretch with fewer steps before it, all its
  /// steps count. Window k of a stretch begins k · ⌊length / 2⌋ steps after the first one, which begins
  /// ⌈length / 2⌉ steps before the stretch, or where the source does. The last one is moved back to end with
  /// the stretch.
  static Windows overlapping(std::vector<Stretch> stretches, std::int64_t length);

  /// One window for every step of the stretches, of which it alone counts. It is the first one of the last
  /// `patch` steps of a window, which begins earlier by a multiple of `patch`, or of an earlier `patch` steps
  /// where the source has fewer steps before it. A window may end behind its source. `length` is a multiple
  /// of `patch`.
  static Windows ending_at_each(std::vector<Stretch> stretches, std::int64_t length, std::int64_t patch);

  std::int64_t size() const { return first_.empty() ? 0 : first_.back(); }
  const std::vector<Stretch>& stretches() const { return stretches_; }
  Window operator[](std::int64_t index) const;

 private:
  enum class Kind { every, overlapping, ending_at_each };

  Windows(std::vector<Stretch> stretches, std::int64_t length, Kind kind, std::int64_t patch = 1);
  /// Steps between the beginnings of overlapping windows.
  std::int64_t stride() const;
  /// Where the first window of a stretch begins, unless it is moved back.
  std::int64_t first_begin(const Stretch& stretch) const;
  std::int64_t count(const Stretch& stretch) const;

  std::vector<Stretch> stretches_;
  std::int64_t length_ = 0;
  Kind kind_ = Kind::every;
  std::int64_t patch_ = 1;
  std::vector<std::int64_t> first_;  ///< index of the first window of each stretch, and the number of all
};

}  // namespace linnet
