#include "run_record.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>

#include "base/fail.h"
#include "data/files.h"
#include "io/file.h"
#include "io/json.h"
#include "report.h"
#include "training/run_config.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

/// A value as TOML writes it: as JSON, but for the one control character that only TOML refuses.
std::string toml_value(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (std::size_t at; (at = text.find('\x7f')) != std::string::npos;) text.replace(at, 1, "\\u007f");
  return text;
}

/// JSON and TOML hold text in UTF-8 alone.
void require_utf8(const std::string& key, const Json& value) {
  try {
    (void)value.dump();
  } catch (const Json::exception&) {
    fail<UsageError>("train", "expected {} in UTF-8, which {} can hold, got {}", key, record_file,
                     value.get<std::string>());
  }
}

std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_./=:,+-@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

}  // namespace

Options RunRecord::options() {
  Options options = options_of(config);
  options.add("run.version", version, "version of Linnet that began the run");
  options.add("run.command", command, "command line that began it");
  options.add("run.started", started, "when, UTC");
  options.add("run.resumed", resumed, "command line of the last resume");
  options.add("run.initial", initial, "model that the run starts from");
  options.add("run.initial_partial", initial_partial, "draw anew what does not fit");
  constexpr std::int64_t many = std::numeric_limits<std::int64_t>::max();
  options.add("fingerprint.files", data.files, "files of the data", 0, many);
  options.add("fingerprint.bytes", data.bytes, "their bytes", 0, many);
  options.add("fingerprint.crc32", data.crc32, "CRC-32 of their contents");
  return options;
}

RunRecord RunRecord::read(const fs::path& run) {
  const fs::path path = run / record_file;
  if (!fs::exists(path))
    fail<UsageError>("train",
                     "expected the folder of a run of linnet train, with {}, which train of C++ and Python "
                     "does not write, got {}",
                     record_file, run.string());
  RunRecord record;
  record.options().parse_toml(read_regular_file(path, most_settings_bytes), path.string());
  if (record.version.empty())
    fail("train", "{}: expected the record of a run, with run.version, got a file without it: it is damaged",
         path.string());
  return record;
}

void RunRecord::write(const fs::path& run) {
  std::string text = "# Everything that decides this run. `linnet train --resume` reads it.\n";
  const Json tables = options().to_json();
  for (const auto& [table, keys] : tables.items()) {
    text += fmt::format("\n[{}]\n", table);
    for (const auto& [key, value] : keys.items()) {
      const std::string name = fmt::format("{}.{}", table, key);
      // What the program was called with is for people alone.
      if (name != "run.command" && name != "run.resumed") require_utf8(name, value);
      text += fmt::format("{} = {}\n", key, toml_value(value));
    }
  }
  write_file_atomically(run / record_file, text);
}

std::vector<std::string*> sources_of(DataOptions& data) {
  return {&data.path, &data.target,      &data.validation, &data.validation_target,
          &data.test, &data.test_target, &data.tokenizer};
}

std::optional<fs::path> run_of(const fs::path& model) {
  const fs::path folder = absolute_path(model);
  const fs::path above = folder.parent_path();
  for (const fs::path& run : {folder, folder.filename() == "best" ? above : folder,
                              above.filename() == "checkpoints" ? above.parent_path() : folder})
    if (fs::exists(run / record_file)) return run;
  return std::nullopt;
}

std::optional<RunColumns> columns_of_model(const fs::path& model) {
  const auto run = run_of(model);
  auto result = RunColumns::read(run.value_or(model));
  if (!result || !run) return result;
  result->form = series_form(RunRecord::read(*run).config.data);
  return result;
}

void warn_of_changed_data(const RunRecord& run) {
  std::int64_t now = 0;
  try {
    now = bytes_of_files(run.config.data);
  } catch (const Error&) {
    return;  // what is missing is said where it is needed
  }
  if (run.data.files > 0 && now != run.data.bytes)
    print_note(fmt::format(
        "warning: the data of the run have changed since it began: {} had {} bytes in all and has {}; parts "
        "may hold what was trained on",
        run.config.data.path, run.data.bytes, now));
}

void warn_of_changed_data(const fs::path& model) {
  if (const auto run = run_of(model)) warn_of_changed_data(RunRecord::read(*run));
}

void warn_of_training_data(const fs::path& model, const std::string& data) {
  const auto run = run_of(model);
  if (!run) return;
  const std::vector<fs::path> own = files_found(RunRecord::read(*run).config.data.path);
  for (const fs::path& file : files_found(data)) {
    const auto is_file = [&](const fs::path& other) {
      std::error_code ignored;
      return fs::is_regular_file(file, ignored) && fs::equivalent(file, other, ignored);
    };
    if (std::ranges::none_of(own, is_file)) continue;
    return print_note(fmt::format(
        "warning: the run was trained with {}, and --split test takes all of it; without --data it takes the "
        "part for testing of the run's own data, where they have one",
        file.string()));
  }
}

std::string own_command_line() {
  std::string line, word;
  for (const char c : read_file("/proc/self/cmdline")) {
    if (c != '\0') {
      word += c;
      continue;
    }
    line += (line.empty() ? "" : " ") + shell_word(word);
    word.clear();
  }
  return line;
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%FT%TZ", &parts);
  return text;
}

}  // namespace linnet
