// Settings as `--set key=value` takes them, one by line, on a shipped configuration's defaults.

#include "base/fail.h"
#include "config.h"
#include "fuzz.h"
#include "io/json.h"
#include "run_record.h"

namespace linnet::fuzz {

void answer(std::string_view input) {
  RunRecord record;
  Options options = record.options();
  for (std::size_t begin = 0; begin < input.size();) {
    const std::size_t end = std::min(input.find('\n', begin), input.size());
    options.apply_assignment(std::string(input.substr(begin, end - begin)));
    begin = end + 1;
  }
  options.check("settings");
  const Json after = options.to_json();
  RunRecord copy;
  Options other = copy.options();
  read_again([&] { other.load_json(after, "settings"); });
  if (other.to_json() != after) report("expected options from JSON to be those that were written");
  try {
    record.config.model.check();
  } catch (const Error&) {
    // Values that are good alone may not fit each other.
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> result;
  RunRecord record;
  std::string all;
  for (const Options::Row& row : record.options().rows()) {
    const std::string line = row.key + "=" + row.value;
    // Left open until the data are known.
    if (row.value == "0" && row.range.starts_with("1 ")) continue;
    if (row.key == "model.length" || row.key == "model.vocabulary" || row.key == "image.channels") continue;
    all += line + "\n";
  }
  const std::string open = "model.length=8\nmodel.vocabulary=1e2\nimage.channels=1\n";
  result.push_back(open + all);
  result.push_back(open);
  result.push_back(open + "training.learning_rate=.5\nmodel.tied_output=true\ndata.path=a=b");
  return result;
}

std::vector<std::string> words() {
  RunRecord record;
  std::vector<std::string> result = words_of(record.options());
  for (const char* word : {"=", "\n", "1e3", "1e19", "-0", "nan", "inf", "true", "9223372036854775808"})
    result.push_back(word);
  return result;
}

}  // namespace linnet::fuzz
