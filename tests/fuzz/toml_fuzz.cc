// A TOML file of a run: as the configuration that `linnet train` takes and as run.toml. What is accepted can
// be written and read again.

#include "base/fail.h"
#include "config.h"
#include "fuzz.h"
#include "io/file.h"
#include "io/json.h"
#include "run_record.h"

namespace linnet::fuzz {
namespace {

/// As the data do where the configuration leaves them open.
void fill(ModelConfig& model) {
  if (model.length == 0) model.length = 16;
  if (model.vocabulary == 0) model.vocabulary = 5;
  if (model.image_channels == 0) model.image_channels = 1;
}

}  // namespace

void answer(std::string_view input) {
  const auto& folder = empty_folder();
  RunRecord record;
  record.options().parse_toml(input, "run.toml");
  if (record.version.empty()) record.version = "0.1.0";  // without which the file would count as damaged
  fill(record.config.model);
  record.write(folder);
  RunRecord again = read_again([&] { return RunRecord::read(folder); });
  if (again.options().to_json() != record.options().to_json())
    report("expected a run.toml that is written to be read as it was");

  const auto path = put(folder / "run.toml", input);
  RunConfig config;
  try {
    load(config, path.string(), {});
    load_without_data(config, path.string(), {});
    config.check_memory(true);
  } catch (const Error&) {
    // A run.toml has keys that a configuration has not.
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> result;
  const auto& folder = empty_folder();
  RunRecord record;
  record.version = "0.1.0";
  fill(record.config.model);
  record.write(folder);
  result.push_back(read_file(folder / "run.toml"));
  result.push_back(
      "# a comment\n[model]\nlayers = 2\nwidth = 8\nheads = 0x2\nnorm = 'post'\n[attention]\nfamily = "
      "\"local\"\n"
      "window = 1_6\n[data]\nkind = \"\"\"text\"\"\"\nlength = 32\npath = \"a \\u00e9 \\\\ b\"\n"
      "[training]\nlearning_rate = 1e-3\nwarmup = +5\n");
  result.push_back("model.width = 16\nmodel.positions = \"none\"\ntraining = { steps = 10, beta1 = 0.5 }\n");
  result.push_back(
      "model = { layers = 1, tied_output = true }\n[data]\n\"labels\" = false\n'seed' = 0b101\n");
  return result;
}

std::vector<std::string> words() {
  RunRecord record;
  std::vector<std::string> result = words_of(record.options());
  for (const char* word :
       {"[[", "]]", "'''", "\"\"\"", "\\U0010ffff", "1979-05-27T07:32:00Z", "07:32:00", "inf", "-nan", "0x",
        "1e5", "{ ", "= [", "\r\n", "\xef\xbb\xbf", "9223372036854775807"})
    result.push_back(word);
  return result;
}

}  // namespace linnet::fuzz
