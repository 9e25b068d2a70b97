#include "texts.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "base/fail.h"
#include "comm/gather.h"
#include "generation/stream_file.h"
#include "io/file.h"
#include "ranks.h"
#include "report.h"
#include "token_text.h"

namespace linnet {
namespace {

/// The texts that the options ask for: new ones after a prompt, or the rest of saved streams.
struct TextPlan {
  std::string prompt;                ///< as it is shown
  std::vector<std::int32_t> tokens;  ///< of the prompt
  std::vector<SavedStream> begun;    ///< the saved streams, where there are some
  std::int64_t count = 1;
  std::int64_t length = 0;  ///< tokens to draw for a new text
  std::vector<std::int64_t> labels;
};

/// Tokens to draw after `known` of the prompt. Throws UsageError where learned positions do not suffice.
std::int64_t length_of_text(const ModelConfig& config, std::int64_t known, std::int64_t wanted) {
  if (config.positions != Positions::learned) return wanted == 0 ? config.length : wanted;
  const std::int64_t length = wanted == 0 ? std::max<std::int64_t>(config.length - known, 1) : wanted;
  if (known + length > config.length)
    fail<UsageError>(
        "generate",
        "expected at most {} tokens, the model's learned positions, got {} of prompt and {} of --length",
        config.length, known, length);
  return length;
}

std::string prompt_of(const Texts& wanted, Communicator& ranks) {
  if (wanted.prompt_file.empty()) return wanted.prompt;
  std::string prompt = read_input(ranks, wanted.prompt_file);
  if (prompt.empty())
    fail("prompt", "expected something to continue in {}, got an empty file", wanted.prompt_file);
  return prompt;
}

TextPlan plan_of(const ModelConfig& config, const TokenText& text, const Texts& wanted, Communicator& ranks) {
  TextPlan plan;
  plan.prompt = prompt_of(wanted, ranks);
  plan.tokens = text.tokens(plan.prompt);
  // Numbers that follow the prompt must not run into its last one.
  if (text.numbers() && !plan.prompt.empty() && plan.prompt.back() != ' ') plan.prompt += ' ';
  if (!wanted.states.empty()) plan.begun = read_streams(wanted.states);
  plan.count = !plan.begun.empty() ? static_cast<std::int64_t>(plan.begun.size())
               : wanted.count == 0 ? 1
                                   : wanted.count;
  plan.length = length_of_text(config, static_cast<std::int64_t>(plan.tokens.size()), wanted.length);
  plan.labels = wanted.labels;
  if (plan.labels.empty()) plan.labels = {config.classes > 0 ? 0 : -1};
  return plan;
}

/// Puts the stream of text `i` at its first token to draw. The result is the number of tokens left to draw.
std::int64_t begin_text(Session& session, const TextPlan& plan, std::size_t i, SamplingOptions sampling) {
  if (!plan.begun.empty()) {
    session.restore(0, plan.begun[i].state);
    return plan.begun[i].left;
  }
  sampling.seed += i;
  session.begin(0, plan.labels[i % plan.labels.size()], sampling);
  session.prefill(0, plan.tokens);
  return plan.length;
}

/// Draws the next `steps` tokens, whose text is printed while they are drawn where `shown`.
std::vector<std::int32_t> draw_tokens(Session& session, TokenText::Stream& text, std::int64_t steps,
                                      bool shown) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t n = 0; n < steps; ++n) {
    std::int32_t token = 0;
    session.step(std::span(&token, 1));
    tokens.push_back(token);
    const std::string added = text.add(token);
    if (!shown) continue;
    fmt::print("{}", added);
    std::fflush(stdout);
  }
  return tokens;
}

struct WrittenText {
  std::string text;                  ///< with its prompt
  std::vector<std::int32_t> tokens;  ///< drawn, those of the prompt left out
};

/// What one rank has drawn, or all of them.
struct DrawnTexts {
  std::vector<std::vector<std::int32_t>> tokens;  ///< of each text, those of the prompt left out
  std::vector<std::int64_t> left;                 ///< of each text, tokens that are still to be drawn
  std::vector<SavedStream> streams;               ///< where they stand now, if they are to be saved
};

struct WrittenTexts {
  std::vector<WrittenText> texts;
  std::string together;              ///< one after another, each with its end of line
  std::vector<SavedStream> streams;  ///< where they stand now, if they are to be saved
  std::int64_t tokens = 0;           ///< drawn for all
};

/// The text behind the tokens that text `i` begins with.
TokenText::Stream text_behind(const TokenText& text, const TextPlan& plan, std::size_t i) {
  if (!plan.begun.empty()) return text.behind(plan.begun[i].tokens);
  TokenText::Stream rest = text.behind(plan.tokens);
  rest.finish();  // the prompt is shown as it is given
  return rest;
}

/// Whether text `i` has come to its end by what was drawn.
bool ends(const DrawnTexts& drawn, std::size_t i) { return drawn.left[i] == 0 && !drawn.tokens[i].empty(); }

/// A single text that is to go on has no end yet.
const char* end_of(const TextPlan& plan, std::int64_t left) {
  return left > 0 && plan.count == 1 ? "" : "\n";
}

/// With --json, and with --out, standard output is not for the text.
bool shows_texts(const Texts& wanted) { return wanted.out.empty() && !wanted.json; }

/// The texts of a share, printed while they are drawn where `shown`.
DrawnTexts draw_texts(const std::shared_ptr<const Model>& model, const TokenText& text, const TextPlan& plan,
                      const Texts& wanted, Share share, bool shown) {
  DrawnTexts drawn;
  for (std::int64_t i = share.begin; i < share.end; ++i) {
    Session session(model, 1, wanted.session);
    const std::int64_t left = begin_text(session, plan, static_cast<std::size_t>(i), wanted.sampling);
    const std::int64_t steps = std::min(left, wanted.steps);
    if (shown) fmt::print("{}", plan.prompt);
    TokenText::Stream rest = text_behind(text, plan, static_cast<std::size_t>(i));
    drawn.tokens.push_back(draw_tokens(session, rest, steps, shown));
    drawn.left.push_back(left - steps);
    if (!wanted.save_states.empty()) drawn.streams.push_back({left - steps, rest.context(), session.save(0)});
    if (shown && ends(drawn, drawn.tokens.size() - 1)) fmt::print("{}", rest.finish());
    if (shown) fmt::print("{}", end_of(plan, left - steps));
  }
  return drawn;
}

/// The texts of all ranks on rank 0.
WrittenTexts draw_on_ranks(const std::shared_ptr<const Model>& model, const TokenText& text,
                           const TextPlan& plan, const Texts& wanted, Communicator& ranks) {
  const Share share = share_of(ranks, plan.count);
  const bool shown = shows_texts(wanted) && ranks.rank() == 0;
  DrawnTexts drawn = draw_texts(model, text, plan, wanted, share, shown);
  drawn.tokens = gather_lists(ranks, std::move(drawn.tokens));
  drawn.left = gather(ranks, std::move(drawn.left));
  WrittenTexts written;
  written.streams = gather_streams(ranks, std::move(drawn.streams));
  for (std::size_t i = 0; i < drawn.tokens.size(); ++i) {
    TokenText::Stream rest = text_behind(text, plan, i);
    std::string one = plan.prompt;
    for (const std::int32_t token : drawn.tokens[i]) one += rest.add(token);
    if (ends(drawn, i)) one += rest.finish();
    const char* end = end_of(plan, drawn.left[i]);
    written.together += one + end;
    if (shown && static_cast<std::int64_t>(i) >= share.end) fmt::print("{}{}", one, end);
    written.tokens += std::ssize(drawn.tokens[i]);
    written.texts.push_back({one, std::move(drawn.tokens[i])});
  }
  return written;
}

void report_texts(const Texts& wanted, const WrittenTexts& written, double seconds) {
  const double rate = static_cast<double>(written.tokens) / seconds;
  Progress().show(fmt::format("{} tokens, {:.0f} tokens/s", written.tokens, rate), true);
  if (!wanted.json) return;
  Json results = Json::array();
  for (const WrittenText& one : written.texts)
    results.push_back(Json{{"text", one.text}, {"tokens", one.tokens}});
  print_json({{"tokens", written.tokens}, {"tokens_per_second", rate}, {"results", results}});
}

}  // namespace

void write_texts(const std::shared_ptr<const Model>& model, const Texts& wanted, Communicator& ranks) {
  const TokenText text(*model, wanted.residues);
  const TextPlan plan = plan_of(model->config(), text, wanted, ranks);
  const auto start = std::chrono::steady_clock::now();
  const WrittenTexts written = draw_on_ranks(model, text, plan, wanted, ranks);
  if (ranks.rank() != 0) return;
  const double seconds = seconds_since(start);
  if (!wanted.save_states.empty()) write_streams(wanted.save_states, written.streams);
  if (!wanted.out.empty()) write_file_atomically(wanted.out, written.together);
  report_texts(wanted, written, seconds);
}

}  // namespace linnet
