#include "fuzz.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "base/fail.h"
#include "io/file.h"

namespace linnet::fuzz {
namespace {

namespace fs = std::filesystem;

/// Removed when the process ends in an orderly way. Programs that crashed leave theirs; scripts/fuzz.sh gives
/// a folder of its own that it removes.
struct Scratch {
  Scratch() {
    const char* base = std::getenv("LINNET_FUZZ_FOLDER");
    path = fs::path(base != nullptr ? base : "/tmp") / fmt::format("linnet-fuzz-{}", ::getpid());
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

const fs::path& scratch() {
  static const Scratch folder;
  return folder.path;
}

/// One word of a dictionary of libFuzzer.
std::string quoted(const std::string& word) {
  std::string result = "\"";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      result += fmt::format("\\{}", c);
    else
      result += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return result + "\"\n";
}

/// Writes FOLDER/seeds and FOLDER/words. Whether all seeds are accepted.
bool prepare(const fs::path& folder) {
  fs::create_directories(folder / "seeds");
  std::string dictionary;
  for (const std::string& word : words())
    if (!word.empty()) dictionary += quoted(word);
  put(folder / "words", dictionary);
  bool good = true;
  std::size_t number = 0;
  for (const std::string& seed : seeds()) {
    put(folder / "seeds" / fmt::format("seed-{:03}", number), seed);
    try {
      answer(seed);
    } catch (const Error& error) {
      good = false;
      std::fputs(fmt::format("seed {} is refused: {}\n", number, error.what()).c_str(), stderr);
    }
    ++number;
  }
  if (number == 0) std::fputs("expected seeds, got none\n", stderr);
  return good && number > 0;
}

/// What every message of an Error has to be: short, with the operation in front.
void check_message(std::string_view message) {
  constexpr std::size_t most = 2500;
  if (!message.starts_with('[') || message.size() > most)
    report(fmt::format("expected an error of at most {} bytes that begins with [operation], got {} bytes: {}",
                       most, message.size(), message.substr(0, most)));
}

}  // namespace

void report(const std::string& finding) {
  std::fputs(fmt::format("finding: {}\n", finding).c_str(), stderr);
  std::abort();
}

const fs::path& empty_folder() {
  const fs::path& folder = scratch();
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

fs::path put(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) fail("fuzz", "cannot write {}", path.string());
  return path;
}

std::uint8_t take_choice(std::string_view& input) {
  if (input.empty()) return 0;
  const auto choice = static_cast<std::uint8_t>(input.front());
  input.remove_prefix(1);
  return choice;
}

std::string with_choice(int choice, std::string_view input) {
  return std::string(1, static_cast<char>(choice)) + std::string(input);
}

std::vector<std::string> words_of(const Options& options) {
  std::vector<std::string> words;
  for (const Options::Row& row : options.rows()) {
    words.push_back(row.key);
    words.push_back(row.key.substr(row.key.rfind('.') + 1));
    words.push_back(row.value);
    std::size_t begin = 0;
    if (row.type == "text" || row.type == "boolean") {
      for (std::size_t end; begin < row.range.size(); begin = end + 2) {
        end = std::min(row.range.find(", ", begin), row.range.size());
        words.push_back(row.range.substr(begin, end - begin));
      }
    }
  }
  return words;
}

}  // namespace linnet::fuzz

/// With --prepare=FOLDER the program writes its seeds and its dictionary there, checks the seeds and ends.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view flag = "--prepare=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = (*argv)[i];
    if (argument.starts_with(flag)) std::exit(linnet::fuzz::prepare(argument.substr(flag.size())) ? 0 : 1);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    linnet::fuzz::answer({reinterpret_cast<const char*>(data), size});
  } catch (const linnet::Error& error) {
    linnet::fuzz::check_message(error.what());
  }
  return 0;
}
