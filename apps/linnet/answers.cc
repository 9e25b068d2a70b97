#include "answers.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <sstream>
#include <vector>

#include "base/fail.h"
#include "comm/gather.h"
#include "data/pairs.h"
#include "io/file.h"
#include "io/json.h"
#include "ranks.h"
#include "report.h"

namespace linnet {
namespace {

/// Whether tokens are bytes, and an answer ends with a token of its own.
bool writes_text(const ModelConfig& config) { return config.vocabulary == pair_vocabulary; }

std::vector<std::string> sources_of(const Answers& answers, Communicator& ranks) {
  if (answers.source_file.empty()) return {answers.source};
  const std::string text = read_input(ranks, answers.source_file);
  std::vector<std::string> sources;
  std::istringstream lines(text);
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

std::vector<std::int32_t> tokens_of(const ModelConfig& config, const std::string& source) {
  std::vector<std::int32_t> tokens;
  if (writes_text(config)) {
    for (const char byte : source) tokens.push_back(static_cast<std::uint8_t>(byte));
    return tokens;
  }
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

/// The answers to a share of the sources.
std::vector<std::vector<std::int32_t>> draw(const std::shared_ptr<const Model>& model, const Answers& answers,
                                            const std::vector<std::string>& sources, std::int64_t length,
                                            Share share) {
  const auto count = static_cast<std::size_t>(share.size());
  if (count == 0) return {};
  const std::int32_t end = writes_text(model->config()) ? pair_end : -1;
  Session session(model, share.size(), {.threads = answers.threads});
  std::vector<std::int64_t> open;
  for (std::int64_t i = 0; i < share.size(); ++i) {
    const auto source = static_cast<std::size_t>(share.begin + i);
    SamplingOptions sampling = answers.sampling;
    sampling.seed += source;
    session.begin(i, tokens_of(model->config(), sources[source]), sampling);
    open.push_back(i);
  }
  std::vector<std::vector<std::int32_t>> drawn(count);
  std::vector<std::int32_t> tokens(count);
  for (std::int64_t step = 0; step < length && !open.empty(); ++step) {
    session.step(std::span(tokens).first(open.size()), open);
    std::vector<std::int64_t> left;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (tokens[i] == end) continue;
      drawn[static_cast<std::size_t>(open[i])].push_back(tokens[i]);
      left.push_back(open[i]);
    }
    open = std::move(left);
  }
  return drawn;
}

std::string text_of(const ModelConfig& config, const std::vector<std::int32_t>& tokens) {
  if (!writes_text(config)) return fmt::format("{}", fmt::join(tokens, " "));
  std::string text;
  for (const std::int32_t token : tokens)
    if (token < pair_separator) text += static_cast<char>(token);
  return text;
}

}  // namespace

void write_answers(const std::shared_ptr<const Model>& model, const Answers& answers, Communicator& ranks) {
  const ModelConfig& config = model->config();
  const std::vector<std::string> sources = sources_of(answers, ranks);
  const std::int64_t length = answers.length == 0 ? config.length : answers.length;
  if (config.positions == Positions::learned && length > config.length)
    fail<UsageError>("generate", "expected --length of at most {}, the model's learned positions, got {}",
                     config.length, length);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::vector<std::int32_t>> drawn =
      gather_lists(ranks, draw(model, answers, sources, length, share_of(ranks, std::ssize(sources))));
  if (ranks.rank() != 0) return;
  const double seconds = seconds_since(start);
  std::string lines;
  Json results = Json::array();
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const std::string text = text_of(config, drawn[i]);
    lines += text + '\n';
    results.push_back(Json{{"source", sources[i]}, {"text", text}, {"tokens", drawn[i]}});
  }
  if (!answers.out.empty()) write_file_atomically(answers.out, lines);
  if (answers.json) return print_json({{"seconds", seconds}, {"results", results}});
  if (answers.out.empty())
    fmt::print("{}", lines);
  else
    fmt::print("{} answers in {:.2f} s: {}\n", drawn.size(), seconds, answers.out);
}

}  // namespace linnet
