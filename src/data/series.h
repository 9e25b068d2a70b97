#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// Of the numbers of a column, as the file has them.
struct ColumnRange {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  double rounding = 0;  ///< the largest distance of a number from its f32
};

/// The columns of a CSV file that are numbers, and its times.
struct Series {
  std::vector<std::string> columns;
  std::string time;                 ///< name of the column with the times; empty for a series without
  std::vector<float> values;        ///< [rows, columns]
  std::vector<std::int64_t> times;  ///< of the rows, as in Timestamp; empty for a series without times
  bool calendar = false;            ///< whether the times are dates
  bool utc = false;                 ///< whether they are dates of UTC
  std::int64_t earlier_line = 0;    ///< the first line whose time is earlier than the one before; 0 for none
  std::vector<ColumnRange> ranges;  ///< [columns]

  std::int64_t rows() const { return static_cast<std::int64_t>(values.size() / columns.size()); }
  /// The times of the rows, and behind the last one those that go on as the last three rows: by months, where
  /// these are the same days of their months or the last ones, otherwise with their distance. Empty for a
  /// series without times, behind one that does not end so, and behind the year 30,000 of months. Throws
  /// Error for a time beyond 64 bits.
  std::string time_text(std::int64_t row) const;
  /// Whether there are times behind the last row.
  bool times_go_on() const { return !time_text(rows()).empty(); }
};

/// Reads a series from CSV (io/csv.h). Of the options it takes `columns`, `time` and `missing`.
///
/// The column with the time is `time`; without that name it is the first one, if its first cell is a date.
/// Times are dates or integers (data/timestamp.h). Clocks that are set back may repeat an hour: only a
/// division of the series by times needs times that never decrease. The other columns, or those that
/// `columns` names, in that order, are decimal numbers within the range of f32, with blanks around them
/// ignored. An empty cell, NaN, NA, N/A, null and None, in letters of either case, are missing: an error, or
/// with `missing` = "forward-fill" the value of the row before.
///
/// Throws UsageError for columns that do not exist, with those that do, and Error for cells that are not
/// what they have to be, with line and column, and for a series without rows. Errors name `origin`.
Series parse_series(std::string_view text, const std::string& origin, const DataOptions& options);

/// The name of the column that seems to hold the times of a series that is read without any: the first one,
/// if it is called after times and its numbers are integers that increase. Empty where there is none.
std::string likely_time(const Series& series);

/// The first file of a dataset of the kind "series"; null for others. It lives as long as the dataset.
const Series* first_series(const Dataset& dataset);

/// Rows of one file that belong to a part of a series, and where it has times those of the first and of the
/// last of them.
struct SeriesStretch {
  std::size_t file = 0;  ///< among the files of the part
  std::int64_t begin = 0, end = 0;
  std::string first_time = {}, last_time = {};
};

/// Those of a dataset of the kind "series", in order; none for others.
std::vector<SeriesStretch> series_stretches(const Dataset& dataset);

/// How the files of a series were read and divided: values of these keys of DataOptions.
struct SeriesForm {
  std::string columns = {}, time = {}, missing = {};  ///< empty: the default
  std::string split = {};                             ///< empty where other files are for validation
};

/// That of a dataset of the kind "series"; nothing for others.
std::optional<SeriesForm> series_form(const Dataset& dataset);

/// The same of the options themselves.
SeriesForm series_form(const DataOptions& options);

/// Rows of the training part of a series, as open_series divides it. Throws as it does.
std::int64_t training_rows(const Series& series, const DataOptions& options, const std::string& origin);

/// The kind "series" of open_datasets.
Datasets open_series(const DataOptions& options, const Parts& parts);

}  // namespace linnet
