#include "io/csv.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/lists.h"
#include "base/names.h"
#include "io/file.h"

namespace linnet {
namespace {

std::ptrdiff_t count_outside_quotes(std::string_view line, char letter) {
  bool quoted = false;
  return std::ranges::count_if(line, [&](char each) {
    if (each == '"') quoted = !quoted;
    return !quoted && each == letter;
  });
}

}  // namespace

char csv_separator(std::string_view text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view header = text.substr(0, end), rest = text.substr(std::min(end + 1, text.size())),
                         record = rest.substr(0, rest.find('\n'));
  for (const char separator : {'\t', ';'})
    if (const auto count = count_outside_quotes(header, separator);
        count > 0 && count_outside_quotes(record, separator) == count)
      return separator;
  return ',';
}

CsvReader::CsvReader(std::string_view text, std::string origin, char separator)
    : text_(without_byte_order_mark(text)), origin_(std::move(origin)), separator_(separator) {
  if (const std::size_t zero = text_.find('\0'); zero != std::string_view::npos)
    fail("csv", "{}: expected text, got a binary file, whose byte {} is 0", origin_, zero);
  // Empty lines at the end are no records. The end of the last record may stay without harm.
  text_ = text_.substr(0, text_.find_last_not_of("\r\n") + 1);
  if (text_.empty()) fail("csv", "{}: expected a header line with the names of columns, got none", origin_);
  read_record();
  std::set<std::string> names;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    std::string name(without_blanks(cells_[i]));
    if (name.empty()) name = fmt::format("column {}", i + 1);
    if (!names.insert(name).second)
      fail("csv", "{}: expected names of columns that differ, got \"{}\" twice", origin_, shortened(name));
    header_.push_back(std::move(name));
  }
}

bool CsvReader::next() {
  if (!read_record()) return false;
  if (cells_.size() != header_.size())
    fail("csv", "{}: expected {} cells in line {}, as in the header, got {}", origin_, header_.size(), line_,
         cells_.size());
  return true;
}

bool CsvReader::read_record() {
  if (at_ >= text_.size()) return false;
  line_ = next_line_;
  std::size_t count = 0;
  for (bool more = true; more; ++count) {
    if (count == cells_.size()) cells_.emplace_back();
    read_cell(cells_[count]);
    more = at_ < text_.size() && text_[at_] == separator_;
    if (more) ++at_;
  }
  cells_.resize(count);
  if (at_ < text_.size()) {
    at_ += line_end();
    ++next_line_;
  }
  return true;
}

void CsvReader::read_cell(std::string& cell) {
  cell.clear();
  if (at_ < text_.size() && text_[at_] == '"') return read_quoted(cell);
  const std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != separator_ && line_end() == 0) {
    if (text_[at_] == '"')
      fail("csv", "{}: expected a quote at the beginning of a cell alone, got one inside in line {}", origin_,
           next_line_);
    ++at_;
  }
  cell.assign(text_.substr(begin, at_ - begin));
}

void CsvReader::read_quoted(std::string& cell) {
  const std::int64_t first_line = next_line_;
  for (++at_;; ++at_) {
    const std::size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos)
      fail("csv", "{}: expected a quote at the end of the cell that begins with one in line {}, got none",
           origin_, first_line);
    const std::string_view part = text_.substr(at_, quote - at_);
    cell.append(part);
    next_line_ += std::ranges::count(part, '\n');
    at_ = quote + 1;
    if (at_ >= text_.size() || text_[at_] != '"') break;
    cell.push_back('"');
  }
  if (at_ < text_.size() && text_[at_] != separator_ && line_end() == 0)
    fail("csv", "{}: expected {} or the end of the line behind a quoted cell, got more of it in line {}",
         origin_,
         separator_ == ','   ? "a comma"
         : separator_ == ';' ? "a semicolon"
                             : "a tab",
         next_line_);
}

std::size_t CsvReader::line_end() const {
  if (text_[at_] == '\n') return 1;
  return text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n' ? 2 : 0;
}

std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (const char letter : text) cell += letter == '"' ? "\"\"" : std::string(1, letter);
  return cell + "\"";
}

}  // namespace linnet
