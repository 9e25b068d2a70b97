#include "answers.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <sstream>
#include <vector>

#include "base/fail.h"
#include "comm/gather.h"
#include "data/pairs.h"
#include "io/file.h"
#include "io/json.h"
#include "linnet/tokenizer.h"
#include "ranks.h"
#include "report.h"

namespace linnet {
namespace {

/// Whether tokens are the bytes of pairs.
bool is_of_pairs(const Model& model) {
  const ModelConfig& config = model.config();
  return config.vocabulary == pair_vocabulary && config.field_sizes().size() == 1 && config.columns == 0 &&
         config.image_height == 0 && model.assets().tokenizer.empty();
}

/// Of a model whose tokens are bytes, and whose answers end with a token of their own; none for another one.
std::optional<Tokenizer> tokenizer_of(const Model& model) {
  if (!is_of_pairs(model)) return {};
  return Tokenizer("", model.config().vocabulary);
}

std::vector<std::string> sources_of(const Answers& answers, Communicator& ranks) {
  if (answers.source_file.empty()) return {answers.source};
  const std::string text = read_input(ranks, answers.source_file);
  std::vector<std::string> sources;
  std::istringstream lines{std::string(without_byte_order_mark(text))};
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty())
      fail("generate", "expected a source on every line of {}, got an empty line {}", answers.source_file,
           sources.size() + 1);
    sources.push_back(std::move(line));
  }
  if (sources.empty())
    fail("generate", "expected a source on every line of {}, got an empty file", answers.source_file);
  return sources;
}

std::vector<std::int32_t> tokens_of(const Model& model, const std::string& source) {
  if (const auto tokenizer = tokenizer_of(model)) return tokenizer->encode(source);
  std::vector<std::int32_t> tokens;
  std::istringstream words(source);
  for (std::string word; words >> word;) {
    std::int32_t token = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || end != word.data() + word.size())
      fail<UsageError>("generate", "expected sources of numbers for this model, got \"{}\"", word);
    tokens.push_back(token);
  }
  return tokens;
}

struct Source {
  std::vector<std::int32_t> tokens;  ///< of a decoder with the separator
  std::int64_t most = 0;             ///< tokens of its answer
};

/// Throws UsageError where learned positions do not suffice for an answer of `wanted` tokens; 0: of so many
/// as they do, at most model.length.
Source source_of(const Model& model, const std::string& text, std::int64_t wanted) {
  const ModelConfig& config = model.config();
  Source source{.tokens = tokens_of(model, text), .most = wanted > 0 ? wanted : config.length};
  if (!config.has_encoder()) source.tokens.push_back(pair_separator);
  if (config.positions != Positions::learned) return source;
  const std::int64_t known = config.has_encoder() ? 0 : std::ssize(source.tokens);
  if (wanted == 0 && known >= config.length)
    fail<UsageError>("generate",
                     "expected a source of less than {} tokens, the model's learned positions, got {} tokens",
                     config.length, known);
  if (wanted == 0) source.most = config.length - known;
  if (known + source.most > config.length)
    fail<UsageError>(
        "generate",
        "expected at most {} tokens, the model's learned positions, got {} of a source and {} of --length",
        config.length, known, source.most);
  return source;
}

/// Longer sources are read, but the model has not learnt to.
void warn_of_long_sources(const ModelConfig& config, const std::vector<Source>& sources) {
  // Without an encoder a separator and an end are part of the sequences.
  const std::int64_t most = config.has_encoder() ? config.source_length : config.length - 2,
                     separators = config.has_encoder() ? 0 : 1;
  std::int64_t longest = 0;
  for (const Source& source : sources)
    longest = std::max<std::int64_t>(longest, std::ssize(source.tokens) - separators);
  if (longest > most)
    print_note(
        fmt::format("warning: the model was trained with sources of at most {} tokens, the longest has {}",
                    most, longest));
}

/// The answers to a share of the sources. A stream whose answer has come to its end takes the next source.
std::vector<std::vector<std::int32_t>> draw(const std::shared_ptr<const Model>& model, const Answers& answers,
                                            const std::vector<Source>& sources, Share share) {
  std::vector<std::vector<std::int32_t>> drawn(static_cast<std::size_t>(share.size()));
  if (drawn.empty()) return drawn;
  const std::int32_t end = is_of_pairs(*model) ? pair_end : -1;
  Session session(model, std::min(answers.streams, share.size()), {.threads = answers.threads});
  std::size_t begun = 0;
  std::vector<std::size_t> answer_of(static_cast<std::size_t>(session.streams()));
  const auto begin_next = [&](std::int64_t stream) {
    const std::size_t source = static_cast<std::size_t>(share.begin) + begun;
    SamplingOptions sampling = answers.sampling;
    sampling.seed += source;
    if (model->config().has_encoder()) {
      session.begin(stream, sources[source].tokens, sampling);
    } else {
      session.begin(stream, -1, sampling);
      session.prefill(stream, sources[source].tokens);
    }
    answer_of[static_cast<std::size_t>(stream)] = begun++;
  };
  std::vector<std::int64_t> open;
  for (std::int64_t stream = 0; stream < session.streams(); ++stream) {
    begin_next(stream);
    open.push_back(stream);
  }
  std::vector<std::int32_t> tokens(open.size());
  while (!open.empty()) {
    session.step(std::span(tokens).first(open.size()), open);
    std::vector<std::int64_t> still_open;
    for (std::size_t i = 0; i < open.size(); ++i) {
      const std::size_t place = answer_of[static_cast<std::size_t>(open[i])];
      if (tokens[i] != end) drawn[place].push_back(tokens[i]);
      const bool goes_on =
          tokens[i] != end &&
          std::ssize(drawn[place]) < sources[static_cast<std::size_t>(share.begin) + place].most;
      if (!goes_on && begun == drawn.size()) continue;
      if (!goes_on) begin_next(open[i]);
      still_open.push_back(open[i]);
    }
    open = std::move(still_open);
  }
  return drawn;
}

std::string text_of(const Model& model, const std::vector<std::int32_t>& tokens) {
  const auto tokenizer = tokenizer_of(model);
  return tokenizer ? tokenizer->decode(tokens) : fmt::format("{}", fmt::join(tokens, " "));
}

}  // namespace

bool answers_sources(const Model& model) { return model.config().has_encoder() || is_of_pairs(model); }

void write_answers(const std::shared_ptr<const Model>& model, const Answers& answers, Communicator& ranks) {
  const ModelConfig& config = model->config();
  const std::vector<std::string> texts = sources_of(answers, ranks);
  std::vector<Source> sources;
  for (const std::string& text : texts) sources.push_back(source_of(*model, text, answers.length));
  if (ranks.rank() == 0) warn_of_long_sources(config, sources);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::vector<std::int32_t>> drawn =
      gather_lists(ranks, draw(model, answers, sources, share_of(ranks, std::ssize(sources))));
  if (ranks.rank() != 0) return;
  const double seconds = seconds_since(start);
  std::string lines;
  Json results = Json::array();
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const std::string text = text_of(*model, drawn[i]);
    std::string line = text;
    std::ranges::replace(line, '\n', ' ');
    lines += line + '\n';
    results.push_back(Json{{"source", texts[i]}, {"text", text}, {"tokens", drawn[i]}});
  }
  if (!answers.out.empty()) write_file_atomically(answers.out, lines);
  if (answers.json) return print_json({{"seconds", seconds}, {"results", results}});
  if (answers.out.empty())
    fmt::print("{}", lines);
  else
    print_summary(answers.out,
                  fmt::format("{} answers in {:.2f} s: {}\n", drawn.size(), seconds, answers.out));
}

}  // namespace linnet
