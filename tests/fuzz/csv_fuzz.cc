// Comma-separated values: the records, the series, and the examples of the data kind. The first byte chooses
// the length, the horizon and what becomes of missing values.

#include <cmath>
#include <limits>

#include "base/fail.h"
#include "data/series.h"
#include "fuzz.h"
#include "io/csv.h"

namespace linnet::fuzz {
namespace {

void read_all(const Dataset& dataset) {
  constexpr std::int64_t most = 16;
  std::vector<float> values(static_cast<std::size_t>(dataset.length() * dataset.columns())),
      targets(static_cast<std::size_t>(dataset.length() * dataset.target_columns()));
  const std::int64_t size = dataset.size();
  for (std::int64_t i = 0; i < std::min(size, most); ++i) {
    dataset.read_values(i < most / 2 ? i : size - 1 - i + most / 2, values, targets);
    bool counts = false;
    for (const float target : targets) counts |= std::isfinite(target);
    if (!counts) report("expected an example of which some target counts");
    for (const float value : values)
      if (!std::isfinite(value)) report("expected values that are finite");
  }
}

}  // namespace

void answer(std::string_view input) {
  const std::uint8_t choice = take_choice(input);
  CsvReader csv(input, "input", csv_separator(input));
  while (csv.next())
    if (csv.cells().size() != csv.header().size()) report("expected as many cells as the header has");
  DataOptions options{.kind = "series", .length = 2 + choice % 8, .horizon = 1 + choice / 8 % 4};
  options.missing = choice / 32 % 2 == 0 ? "refuse" : "forward-fill";
  const Series series = parse_series(input, "input", options);
  if (series.values.size() % series.columns.size() != 0) report("expected whole rows");
  options.path = put(empty_folder() / "input.csv", input).string();
  try {
    const Datasets data = open_datasets(options);
    for (const Dataset* part : {data.training.get(), data.validation.get(), data.test.get()})
      if (part != nullptr) read_all(*part);
  } catch (const Error&) {
    // Fewer rows than the parts need.
  }
}

std::vector<std::string> seeds() {
  std::string dates = "date,x,\"y\"\r\n", integers = "a\n", semicolons = "t;x, m\n";
  for (int i = 0; i < 60; ++i) {
    dates += "2016-07-" + std::to_string(10 + i / 3) + " 00:00:00," + std::to_string(i) + ".5,\"-1e" +
             std::to_string(i % 7) + "\"\r\n";
    integers += std::to_string(i) + "\n";
    semicolons += std::to_string(i) + ";" + std::to_string(i) + ",5\n";
  }
  return {with_choice(0, dates), with_choice(8 + 3, dates), with_choice(6, integers),
          with_choice(32, "a,b\n1,2\n,nan\n\"3\", 4 \n"), with_choice(1, semicolons)};
}

std::vector<std::string> words() {
  return {"\"\"", ",\"", "\r\n", "\xef\xbb\xbf", "nan", "1e38", "2016-07-01 00:00:00", "inf"};
}

}  // namespace linnet::fuzz
