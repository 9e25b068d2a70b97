#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

/// A cell as a file of comma-separated values has it: in quotes where it needs them.
std::string csv_cell(std::string_view text);

/// What parts the cells of a text: a tab or a semicolon that the lines of the header and of the first record
/// have equally often outside of quotes, otherwise a comma.
char csv_separator(std::string_view text);

/// Reads comma-separated values (RFC 4180) record by record. The first record is the header, and every other
/// one has as many cells. Lines end with a newline, or a carriage return and a newline; the last end may be
/// missing. A cell in double quotes may contain commas, line ends and doubled quotes. A byte order mark of
/// UTF-8 before the header and empty lines after the last record are skipped.
class CsvReader {
 public:
  /// The text stays the caller's; `separator` stands in the place of commas. Throws Error, as `next` does,
  /// naming `origin` and the line: for a text without a header, two columns of one name, a byte of 0, a cell
  /// with a quote inside that is not doubled, a quoted cell without an end, and a record with another number
  /// of cells than the header.
  CsvReader(std::string_view text, std::string origin, char separator = ',');

  /// The names of the columns, without blanks around them. Column i (from 1) without a name is "column i".
  const std::vector<std::string>& header() const { return header_; }

  /// Reads the next record; false at the end of the text.
  bool next();

  /// The cells of the record, as many as the header has.
  const std::vector<std::string>& cells() const { return cells_; }

  /// The line, from 1, in which the record begins.
  std::int64_t line() const { return line_; }

 private:
  bool read_record();
  /// Reads one cell into `cell`, up to the separator or the line end behind it.
  void read_cell(std::string& cell);
  void read_quoted(std::string& cell);
  /// The bytes of a line end at `at_`; 0 where there is none.
  std::size_t line_end() const;

  std::string_view text_;
  std::string origin_;
  char separator_;
  std::size_t at_ = 0;
  std::int64_t next_line_ = 1, line_ = 0;
  std::vector<std::string> header_, cells_;
};

}  // namespace linnet
