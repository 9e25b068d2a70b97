#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <sstream>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "data/fasta.h"
#include "io/file.h"
#include "linnet/model.h"
#include "metrics_file.h"
#include "report.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, protein, fasta, text, tokens;
  std::int64_t top = 1;
  bool json = false;
  int threads = 0;
};

constexpr std::int32_t hidden_token = -1;

using Tokens = std::vector<std::int32_t>;

/// A sequence with hidden tokens, and of a FASTA file the line of its name.
struct Given {
  Tokens tokens;
  std::optional<std::string> name = {};
};

/// How tokens are written: as the letters of residues, as bytes, or as numbers.
enum class Writing { residues, bytes, numbers };

/// Tokens of steps that have one of each field, which take so many values.
Tokens tokens_of_numbers(const std::string& text, const std::vector<std::int64_t>& sizes) {
  Tokens result;
  std::istringstream words(text);
  std::string word;
  while (words >> word) {
    if (word == "_") {
      result.push_back(hidden_token);
      continue;
    }
    const std::int64_t size = sizes[result.size() % sizes.size()];
    if (!whole(0, size - 1).problem(word).empty())
      fail<UsageError>("fill", "expected tokens in 0 … {}, or _ for a hidden one, got {}", size - 1, word);
    result.push_back(std::stoi(word));
  }
  if (result.empty()) fail<UsageError>("fill", "expected at least 1 token in --tokens, got none");
  return result;
}

/// X, which stands for any residue, is a hidden one.
std::int32_t token_of_residue(std::int32_t residue) {
  return residues[static_cast<std::size_t>(residue)] == 'X' ? hidden_token : residue;
}

bool marks_hidden_residue(char c) { return c == '_' || c == '?'; }

Tokens tokens_of_protein(const std::string& letters) {
  Tokens result;
  for (const char c : letters) {
    if (marks_hidden_residue(c)) {
      result.push_back(hidden_token);
      continue;
    }
    const std::int32_t residue = residue_of(c);
    if (residue < 0)
      fail<UsageError>("fill",
                       "expected the letters {}, or _, ? or X for a hidden residue, in --protein, got {}",
                       residues, letters);
    result.push_back(token_of_residue(residue));
  }
  return result;
}

std::vector<Given> proteins_of_fasta(const std::string& path) {
  std::istringstream lines(read_maybe_gzipped(path, most_fasta_bytes));
  std::string text, line;
  std::vector<std::string> names;
  while (std::getline(lines, line)) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.starts_with('>'))
      names.push_back(line.substr(1));
    else
      std::ranges::replace_if(line, marks_hidden_residue, 'X');
    text += line + '\n';
  }
  std::vector<Given> result;
  for (const Sequence& sequence : parse_fasta(text, path)) {
    Tokens& tokens = result.emplace_back().tokens;
    for (const std::uint8_t residue : sequence) tokens.push_back(token_of_residue(residue));
  }
  if (names.size() == result.size())
    for (std::size_t i = 0; i < names.size(); ++i) result[i].name = names[i];
  return result;
}

Tokens tokens_of_text(const std::string& text) {
  Tokens result;
  for (const char c : text) result.push_back(c == '_' ? hidden_token : static_cast<unsigned char>(c));
  return result;
}

/// How the given option writes tokens. Throws UsageError unless exactly one is given.
Writing writing_of(const Arguments& arguments) {
  const int given = !arguments.protein.empty() + !arguments.fasta.empty() + !arguments.text.empty() +
                    !arguments.tokens.empty();
  if (given != 1)
    fail<UsageError>("fill", "expected one of --protein, --fasta, --text and --tokens, got {} of them",
                     given);
  if (!arguments.tokens.empty()) return Writing::numbers;
  return arguments.text.empty() ? Writing::residues : Writing::bytes;
}

void check_vocabulary(const ModelConfig& config, Writing writing) {
  const auto check = [&](const char* options, std::int64_t vocabulary) {
    if (config.vocabulary != vocabulary)
      fail<UsageError>("fill",
                       "expected --tokens for a model of {} tokens, got {}, which a model of {} takes",
                       config.vocabulary, options, vocabulary);
  };
  if (config.field_sizes().size() > 1 && writing != Writing::numbers)
    fail<UsageError>("fill", "expected --tokens for a model of several fields, got another option");
  if (writing == Writing::residues) check("a protein", std::ssize(residues));
  if (writing == Writing::bytes) check("a text", 256);
}

std::vector<Given> read_sequences(const Arguments& arguments, const std::vector<std::int64_t>& sizes) {
  if (!arguments.protein.empty()) return {{tokens_of_protein(arguments.protein)}};
  if (!arguments.fasta.empty()) return proteins_of_fasta(arguments.fasta);
  if (!arguments.text.empty()) return {{tokens_of_text(arguments.text)}};
  return {{tokens_of_numbers(arguments.tokens, sizes)}};
}

std::string written(Writing writing, std::int32_t token) {
  if (writing == Writing::numbers) return fmt::format("{}", token);
  if (writing == Writing::bytes) return std::string(1, static_cast<char>(token));
  return std::string(1, residues[static_cast<std::size_t>(token)]);
}

/// As it is written, or as \x and two digits where it would not show.
std::string shown(Writing writing, std::int32_t token) {
  if (writing == Writing::bytes && (token <= 32 || token > 126)) return fmt::format("\\x{:02x}", token);
  return written(writing, token);
}

/// The `top` most probable tokens, the most probable first.
Json most_probable(View<const float> probabilities, std::int64_t top, Writing writing) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(probabilities.size()));
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + std::min<std::ptrdiff_t>(top, std::ssize(order));
  std::ranges::partial_sort(order, end, std::greater(),
                            [&](std::int32_t token) { return probabilities.data()[token]; });
  Json result = Json::array();
  for (const std::int32_t token : std::span(order.begin(), end))
    result.push_back(
        {{"token", token}, {"written", shown(writing, token)}, {"probability", probabilities.data()[token]}});
  return result;
}

/// "L 0.12, K 0.11".
std::string as_text(const Json& most_probable) {
  std::vector<std::string> parts;
  for (const Json& one : most_probable)
    parts.push_back(
        fmt::format("{} {:.3g}", one["written"].get<std::string>(), one["probability"].get<double>()));
  return fmt::format("{}", fmt::join(parts, ", "));
}

Json filled(Context& context, const Model& model, const Given& given, Writing writing, std::int64_t top) {
  const Tokens& tokens = given.tokens;
  const std::int64_t fields = std::ssize(model.config().field_sizes());
  const Filling filling = model.fill(context, tokens, 1, std::ssize(tokens) / fields);
  Tokens whole = tokens;
  Json hidden = Json::array();
  for (std::size_t i = 0; i < filling.positions.size(); ++i) {
    const std::int32_t token = filling.tokens[i];
    whole[static_cast<std::size_t>(filling.positions[i])] = token;
    const View<const float> probabilities = filling.probabilities.view<float>().slice(
        0, static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1);
    hidden.push_back({{"position", filling.positions[i]},
                      {"token", token},
                      {"written", shown(writing, token)},
                      {"probability", probabilities.data()[token]}});
    if (top == 1) continue;
    // Of steps of several fields the row has room for the largest one.
    const auto size = model.config().field_sizes()[static_cast<std::size_t>(filling.positions[i] % fields)];
    hidden.back()["top"] = most_probable(View<const float>(probabilities.data(), {size}), top, writing);
  }
  std::string text;
  for (const std::int32_t token : whole)
    text += (writing == Writing::numbers && !text.empty() ? " " : "") + written(writing, token);
  Json result = {{"filled", text}, {"hidden", hidden}};
  if (given.name) result["name"] = *given.name;
  return result;
}

void run(const Arguments& arguments) {
  const Writing writing = writing_of(arguments);
  const std::shared_ptr<const Model> model = Model::load(arguments.model);
  note_better_evaluation(arguments.model);
  check_vocabulary(model->config(), writing);
  Context context(arguments.threads);
  Json results = Json::array();
  bool any_hidden = false;
  for (const Given& given : read_sequences(arguments, model->config().field_sizes())) {
    results.push_back(filled(context, *model, given, writing, arguments.top));
    any_hidden = any_hidden || !results.back()["hidden"].empty();
  }
  if (!any_hidden) print_note("no token is hidden: _ stands for a hidden token");
  if (arguments.json) {
    print_json(results);
    return;
  }
  for (Json& result : results) {
    if (result.contains("name")) fmt::print(">{}\n", result["name"].get<std::string>());
    fmt::print("{}\n", result["filled"].get<std::string>());
    if (result["hidden"].empty()) continue;
    for (Json& row : result["hidden"])
      if (row.contains("top")) row["most probable"] = as_text(row["top"]);
    if (arguments.top > 1)
      print_table(result["hidden"], {"position", "most probable"});
    else
      print_table(result["hidden"], {"position", "written", "probability"});
  }
}

}  // namespace

void add_fill(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("fill", "Predict the hidden tokens of a sequence with an encoder");
  command.footer(
      "_ stands for a hidden token. In proteins ? and X stand for one too.\n"
      "Every hidden token is predicted from the tokens that are given, not from other predictions.\n"
      "Examples: linnet fill runs/proteins --protein MKV_LLAG_\n"
      "          linnet fill runs/proteins --fasta hidden.fasta --json");
  command.add_option("model", arguments->model, "folder of a model or of a run, trained as \"masked\"")
      .required();
  command.add_option("--protein", arguments->protein, "residues of one protein");
  command.add_option("--fasta", arguments->fasta, "FASTA file of proteins, plain or gzipped");
  command.add_option("--text", arguments->text, "text for a model of bytes");
  command.add_option("--tokens", arguments->tokens, "tokens as numbers, such as \"3 1 _ 4\"");
  command.add_option("--top", arguments->top, "show so many of the most probable tokens for each hidden one")
      .check(whole(1, most_count))
      .capture_default_str();
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
