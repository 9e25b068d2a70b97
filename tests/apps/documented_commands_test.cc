// Every command that README, docs/, the configurations and --help show is run, in the order of the page and
// in a folder of its own. Data that the project does not contain are tiny files of the same names, and what
// would take minutes is made small by `rules`. Nothing is left out: a command that no rule makes runnable
// fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "apps/program.h"
#include "apps/shown_commands.h"
#include "io/file.h"
#include "io/midi.h"
#include "io/png.h"
#include "io/safetensors.h"
#include "support/folder.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using Kind = ShownCommand::Kind;

const fs::path source = LINNET_SOURCE_FOLDER;

/// How commands are made small.
struct Rule {
  Strings command;   ///< the first word, and others anywhere behind it
  Strings values;    ///< options and their values, which replace those that are shown
  Strings appended;  ///< behind everything else
};

const Strings small_model = {"--set", "model.width=16", "model.heads=2", "model.feed_forward=32"};

/// The first that fits is used. A command without a rule runs as it is.
const std::vector<Rule> rules = {
    {{"train", "--resume"}, {}, {"--set", "training.steps=3"}},
    {{"train", "--options"}, {}, {}},
    {{"train"},
     {},
     joined(small_model, {"training.steps=2", "training.batch=2", "training.log_every=1",
                          "training.evaluate_examples=2", "training.sample_every=0"})},
    {{"evaluate"}, {"--examples", "4"}, {}},
    {{"classify", "--text"}, {}, {}},
    {{"classify"}, {"--examples", "4"}, {}},
    {{"forecast"}, {"--steps", "5"}, {}},
    {{"generate", "runs/music"}, {"--length", "5"}, {}},
    {{"embed"}, {"--examples", "4"}, {}},
    {{"approximate"}, {"--features", "8:16", "--draws", "2", "--length", "32"}, {}},
    {{"data", "tokenizer"}, {"--size", "290"}, {}},
    {{"data", "instruments"}, {"--seconds", "8", "--test", "6"}, {}},
    {{"data", "midi"}, {}, {}},
    {{"data", "show"}, {}, {}},
    {{"data"}, {"--count", "20"}, {}},
    {{"bench", "attention", "step"}, {"--seconds", "0.01", "--heads", "1", "--streams", "16"}, {}},
    {{"bench", "attention"}, {"--length", "128,256", "--seconds", "0.01", "--heads", "1"}, {}},
    {{"inspect", "--ranks"}, {}, small_model},
    {{"bench", "train"}, {"--batch", "1", "--seconds", "0.01"}, small_model},
    {{"bench", "generate", "--position"}, {"--position", "1,16"}, small_model},
    {{"bench", "generate", "--real-time"}, {"--steps", "100"}, small_model},
    {{"bench", "generate"}, {"--streams", "1,2", "--seconds", "0.01"}, small_model},
};

/// The words of the command, made small.
Strings small(Strings words) {
  const auto has = [&](const std::string& word) { return std::ranges::find(words, word) != words.end(); };
  for (const Rule& rule : rules) {
    if (words.front() != rule.command.front() || !std::ranges::all_of(rule.command, has)) continue;
    for (std::size_t i = 0; i < rule.values.size(); i += 2) {
      const auto option = std::find(words.begin(), words.end(), rule.values[i]);
      if (option == words.end())
        words = joined(words, {rule.values[i], rule.values[i + 1]});
      else
        *std::next(option) = rule.values[i + 1];
    }
    return joined(words, rule.appended);
  }
  return words;
}

/// The runs that pages use without showing how they were trained.
const std::map<std::string, Strings> presumed_runs = {
    {"digits", {"train", "digits"}},
    {"linear", {"train", "digits"}},
    {"softmax", {"train", "digits", "--set", "attention.family=softmax"}},
    {"linear-1", {"train", "digits"}},
    {"linear-2", {"train", "digits", "--set", "training.seed=2"}},
    {"softmax-1", {"train", "digits", "--set", "attention.family=softmax"}},
    {"softmax-2", {"train", "digits", "--set", "attention.family=softmax", "training.seed=2"}},
    {"text", {"train", "text", "--data", "book.txt"}},
    {"proteins", {"train", "proteins", "--data", "proteins.fasta"}},
    {"mnist", {"train", "paper-mnist", "--data", "mnist"}},
    {"reviews", {"train", "classify-lines", "--data", "reviews.tsv"}},
    {"classify-mnist", {"train", "classify-mnist", "--data", "mnist"}},
    {"series", {"train", "series", "--data", "ETTh1.csv"}},
    {"anomalies", {"train", "anomalies", "--data", "machine.csv"}},
    {"music", {"train", "music", "--data", "jsb_train.safetensors"}},
    {"reverse", {"train", "reverse-text"}},
    {"audio", {"train", "audio", "--data", "music/noisy.wav", "--set", "data.target=music/clean.wav"}},
};

std::string text_file() {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "Line " + std::to_string(i * 7 % 200) + " of a text.\n";
  return text;
}

/// Lines that begin with one of two words.
std::string labelled_lines() {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += std::string(i % 3 == 0 ? "odd" : "even") + "\tline " + std::to_string(i) + "\n";
  return text;
}

/// Small pictures in two folders.
void write_pictures(const fs::path& folder) {
  for (const char* name : {"circle", "square"}) {
    fs::create_directories(folder / name);
    for (int i = 0; i < 12; ++i)
      write_png(folder / name / (std::to_string(i) + ".png"),
                {24, 24, 1, std::vector<std::uint8_t>(24 * 24, static_cast<std::uint8_t>(20 * i))});
  }
}

std::string proteins_file(const std::string& residues) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += ">protein " + std::to_string(i) + "\n" + residues + "\n";
  return text;
}

/// A series of two columns, a row every six hours from the first of July 2016 on.
std::string series_file(int days) {
  std::string text = "date,HUFL,OT\n";
  using namespace std::chrono;
  const sys_days first{year{2016} / July / 1};
  for (int i = 0; i < 4 * days; ++i) {
    const year_month_day day{first + std::chrono::days{i / 4}};
    char line[80];
    std::snprintf(line, sizeof line, "%d-%02u-%02u %02d:00:00,%d.5,%d\n", static_cast<int>(day.year()),
                  static_cast<unsigned>(day.month()), static_cast<unsigned>(day.day()), 6 * (i % 4),
                  i * 7 % 31, i * 3 % 17);
    text += line;
  }
  return text;
}

/// Pieces of four fields.
void write_chorales(const fs::path& path) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 400 * 4; ++i) tokens.push_back(i * 13 % 60);
  const std::vector<std::int64_t> offsets = {0, 40, 80, 120, 160, 200, 240, 280, 320, 360, 400};
  const std::vector<NamedTensor> tensors = {{"tokens", DType::i32, {400, 4}, tokens.data()},
                                            {"offsets", DType::i64, {std::ssize(offsets)}, offsets.data()}};
  write_safetensors(path, tensors, {});
}

/// The same pieces as MIDI files.
void write_midi_files(const fs::path& folder) {
  fs::create_directory(folder);
  for (int piece = 0; piece < 10; ++piece) {
    std::vector<std::int32_t> pitches;
    for (int i = 0; i < 40 * 4; ++i) pitches.push_back(30 + (piece * 7 + i * 13) % 60);
    std::ofstream(folder / ("piece" + std::to_string(piece) + ".mid"), std::ios::binary)
        << midi_file({4, pitches}, 4, 90);
  }
}

void write_cifar(const fs::path& folder) {
  fs::create_directory(folder);
  for (const char* name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    std::string records;
    for (int i = 0; i < 2 * 3073; ++i) records += static_cast<char>(i % 3073 == 0 ? 1 : i * 37 % 251);
    std::ofstream(folder / (std::string(name) + ".bin"), std::ios::binary) << records;
  }
}

/// q, k, v and grad_out of two sequences of 200 tokens and two heads.
void write_attention_inputs(const fs::path& path) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> values;
  std::vector<NamedTensor> tensors;
  for (const char* name : {"q", "k", "v", "grad_out"}) {
    values.emplace_back(2 * 200 * 2 * 16);
    for (float& value : values.back()) value = normal(random);
    tensors.push_back({name, DType::f32, {2, 200, 2, 16}, values.back().data()});
  }
  write_safetensors(path, tensors, {});
}

/// The data that documents name, and runs, made when they are first asked for.
class Stock {
 public:
  static Stock& get() {
    static Stock stock;
    return stock;
  }

  /// A folder to run commands in, with links to the data.
  void link_into(const fs::path& folder) const {
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (entry.path().filename() != "runs")
        fs::create_symlink(entry.path(), folder / entry.path().filename());
    fs::create_directory(folder / "docs");
  }

  void copy_run(const std::string& name, const fs::path& folder) {
    ASSERT_TRUE(presumed_runs.contains(name))
        << "runs/" << name << " is neither trained before nor known to this test";
    const std::string run = "runs/" + name;
    if (!fs::exists(folder_ / run))
      succeed(small(joined(presumed_runs.at(name), {"--out", run})), {.folder = folder_.path().string()});
    fs::create_directories(folder / "runs");
    fs::copy(folder_ / run, folder / run, fs::copy_options::recursive);
  }

 private:
  Stock() {
    for (const char* name : {"book.txt", "shakespeare.txt", "tinyshakespeare.txt", "letters.txt"})
      std::ofstream(folder_ / name) << text_file();
    std::ofstream(folder_ / "proteins.fasta") << proteins_file("MKVLLAGWQERTYIPASDFGHKCNV");
    std::ofstream(folder_ / "hidden.fasta") << proteins_file("MKV_LLAG");
    for (const char* name : {"reviews.tsv", "pairs.tsv"}) std::ofstream(folder_ / name) << labelled_lines();
    write_pictures(folder_ / "shapes");
    write_cifar(folder_ / "cifar-10-batches-bin");
    for (const char* name : {"ETTh1.csv", "newer.csv"}) std::ofstream(folder_ / name) << series_file(620);
    std::ofstream(folder_ / "machine.csv") << series_file(1000);
    std::ofstream(folder_ / "strings.txt") << "linnet\nbackwards\n";
    write_midi_files(folder_ / "chorales");
    for (const char* name :
         {"jsb_train.safetensors", "jsb_valid.safetensors", "jsb_test.safetensors", "pieces.safetensors"})
      write_chorales(folder_ / name);
    for (const char* name : {"qkv.safetensors", "first.safetensors"}) write_attention_inputs(folder_ / name);
    fs::create_directory_symlink(source / "models", folder_ / "models");
    fs::create_directory_symlink(source / "configs", folder_ / "configs");
    succeed({"data", "digits", "--count", "20", "--test", "10", "--out", (folder_ / "mnist").string()});
    succeed({"data", "instruments", "--seconds", "8", "--test", "6", "--out", (folder_ / "music").string()});
  }

  Folder folder_{"stock"};
};

/// Runs of the command's inputs that no command before has trained.
void make_presumed_runs(const Strings& words, const fs::path& folder) {
  static const std::regex path("runs/([a-z0-9-]+).*");
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i - 1] == "--out") continue;
    std::smatch found;
    std::string name;
    if (std::regex_match(words[i], found, path)) name = found[1];
    if (words[i] == "runs" && !fs::exists(folder / "runs")) name = "digits";
    if (!name.empty() && !fs::exists(folder / "runs" / name)) Stock::get().copy_run(name, folder);
  }
}

void run(const ShownCommand& shown, const fs::path& folder) {
  ASSERT_FALSE(shown.command.empty()) << "no such command";
  const Strings words = small(shown.words);
#ifndef LINNET_SENTENCEPIECE
  if (shown.text.find("tokenizer") != std::string::npos ||
      shown.text.find("runs/tokens") != std::string::npos)
    return;
#endif
#ifndef LINNET_SNDFILE
  if (shown.text.find("instruments") != std::string::npos || shown.text.find("band/") != std::string::npos ||
      shown.text.find("runs/audio") != std::string::npos)
    return;
#endif
  make_presumed_runs(words, folder);
  // Benchmarks measure the machine for a second first: those that are the same when they are small run once.
  static std::set<Strings> benchmarks;
  if (words.front() == "bench" && !benchmarks.insert(words).second) return;
  const Ended ended = succeed(words, {.folder = folder.string()});
  if (!shown.into.empty()) {
    ASSERT_NE(shown.into.front(), '/');
    fs::create_directories((folder / shown.into).parent_path());
    std::ofstream(folder / shown.into, std::ios::binary) << ended.out;
  }
}

/// Its options are those that --help of the command shows.
void expect_known_options(const ShownCommand& shown) {
  static std::map<Strings, std::string> helps;
  static const std::regex option("--[a-z][a-z0-9-]*");
  ASSERT_FALSE(shown.command.empty()) << "no such command";
  std::string& help = helps[shown.command];
  if (help.empty()) help = succeed(joined(shown.command, {"--help"})).out;
  for (std::sregex_iterator at(shown.text.begin(), shown.text.end(), option), none; at != none; ++at)
    EXPECT_TRUE(std::regex_search(help, std::regex(at->str() + "(?![a-z0-9-])")))
        << at->str() << " is no option";
}

std::vector<ShownCommand> commands_of(const std::string& page) {
  if (page.ends_with(".md")) return commands_of_page(read_file(source / page));
  if (page.ends_with(".toml")) return commands_of_configuration(read_file(source / page));
  std::vector<ShownCommand> found;
  for (const Strings& command : all_commands())
    for (const ShownCommand& example : examples_of_help(succeed(joined(command, {"--help"})).out))
      found.push_back(example);
  return found;
}

class DocumentedCommands : public testing::TestWithParam<std::string> {};

TEST_P(DocumentedCommands, Succeed) {
  const Folder folder;
  Stock::get().link_into(folder.path());
  for (const ShownCommand& shown : commands_of(GetParam())) {
    SCOPED_TRACE(GetParam() + " shows: " + shown.text);
    if (shown.kind == Kind::whole)
      run(shown, folder.path());
    else
      expect_known_options(shown);
  }
}

/// README, the pages, the configurations, and "help" for --help of all commands.
Strings pages() {
  Strings found = {"README.md", "help"};
  for (const char* folder : {"docs", "docs/commands", "configs"})
    for (const auto& entry : fs::directory_iterator(source / folder))
      if (entry.is_regular_file() &&
          (entry.path().extension() == ".md" || entry.path().extension() == ".toml"))
        found.push_back(fs::relative(entry.path(), source).string());
  std::sort(found.begin(), found.end());
  return found;
}

INSTANTIATE_TEST_SUITE_P(Pages, DocumentedCommands, testing::ValuesIn(pages()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char letter) { return !std::isalnum(letter); }, '_');
  return name;
});

// The tests above look at nothing that the reader of pages does not find.
TEST(ShownCommands, AreFoundInBlocksInlineCodeAndComments) {
  const auto found = commands_of_page(
      "Call `linnet train` or `linnet runs --json`, but not `--json`; `linnet generate\nRUN --count 3` takes "
      "runs.\n"
      "```\n$linnet fill runs/a --text \"a _ b\" > part   # comment\nlinnet plot [--x\n            "
      "seconds]\ncmake .\n```\n"
      "`linnet evaluate runs/a`");
  ASSERT_EQ(found.size(), 6u);
  const Kind kinds[] = {Kind::mention, Kind::mention, Kind::grammar, Kind::whole, Kind::grammar, Kind::whole};
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].kind, kinds[i]) << found[i].text;
  EXPECT_EQ(found[3].words, (Strings{"fill", "runs/a", "--text", "a _ b"}));
  EXPECT_EQ(found[3].into, "part");
  EXPECT_THAT(found[4].text, testing::HasSubstr("seconds]"));
  EXPECT_EQ(commands_of_configuration("# As in: linnet runs runs\n[model]\n").front().words,
            (Strings{"runs", "runs"}));
}

// Every script, configuration, example and other file of the project that documents name is there. Names with
// a placeholder in capitals, and lists such as head.{h,cc}, are left out.
TEST(Documents, NameFilesThatAreThere) {
  static const std::regex path(
      R"re((^|[^A-Za-z0-9_./$-])((scripts|configs|examples|experiments|docs|models|apps|tests|bench|cmake|include|src)/[A-Za-z0-9_./{},*-]*[A-Za-z0-9_}*]))re");
  static const std::regex pattern("[A-Z]{2,}|[{*]");
  for (const std::string& page : pages()) {
    if (!page.ends_with(".md")) continue;
    const std::string text = read_file(source / page);
    for (std::sregex_iterator at(text.begin(), text.end(), path), none; at != none; ++at) {
      const std::string named = (*at)[2];
      if (!std::regex_search(named, pattern)) {
        EXPECT_TRUE(fs::exists(source / named)) << page << " names " << named;
      }
    }
  }
}

}  // namespace
}  // namespace linnet
