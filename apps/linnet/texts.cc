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
#include "stop_texts.h"
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
  if (wanted == 0 && known >= config.length)
    fail<UsageError>("generate",
                     "expected a prompt of less than {} tokens, the model's learned positions, got {} tokens",
                     config.length, known);
  const std::int64_t length = wanted == 0 ? config.length - known : wanted;
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

struct WrittenText {
  std::string text;                  ///< with its prompt
  std::vector<std::int32_t> tokens;  ///< drawn, those of the prompt left out
  bool stopped = false;              ///< whether one of the words ended it
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

/// The text behind the tokens that a text begins with.
class ContinuedText {
 public:
  ContinuedText(const TokenText& text, const TextPlan& plan, const Texts& wanted, std::size_t i)
      : rest_(text.behind(plan.begun.empty() ? plan.tokens : plan.begun[i].tokens)), stop_(wanted.stop) {
    if (plan.begun.empty()) rest_.finish();  // the prompt is shown as it is given
  }

  /// What a token adds for certain.
  std::string add(std::int32_t token) { return stop_.add(rest_.add(token)); }
  /// What is left at the end of the text.
  std::string finish() { return stop_.add(rest_.finish()) + stop_.finish(); }
  bool stopped() const { return stop_.found(); }
  std::vector<std::int32_t> context() const { return rest_.context(); }

 private:
  TokenText::Stream rest_;
  StopTexts stop_;
};

/// Whether a text has come to its end by what was drawn.
bool ends(std::int64_t left, const std::vector<std::int32_t>& tokens) { return left == 0 && !tokens.empty(); }

/// A single text that is to go on has no end yet.
const char* end_of(const TextPlan& plan, std::int64_t left) {
  return left > 0 && plan.count == 1 ? "" : "\n";
}

/// With --json, and with --out, standard output is not for the text.
bool shows_texts(const Texts& wanted) { return wanted.out.empty() && !wanted.json; }

/// The texts of a share, which are drawn at the same time, a stream of the session each.
class TextsTogether {
 public:
  TextsTogether(const std::shared_ptr<const Model>& model, const TokenText& text, const TextPlan& plan,
                const Texts& wanted, Share share)
      : plan_(plan), wanted_(wanted), session_(model, share.size(), wanted.session) {
    for (std::int64_t i = 0; i < share.size(); ++i) {
      const auto place = static_cast<std::size_t>(share.begin + i);
      left_.push_back(begin(i, place));
      text_.emplace_back(text, plan, wanted, place);
      tokens_.emplace_back();
    }
  }

  /// Draws all of them. The first one is printed while it is drawn where `shown`, the others at their end.
  void draw(bool shown) {
    if (shown) fmt::print("{}", plan_.prompt);
    std::vector<std::int64_t> open;
    std::vector<std::int32_t> drawn;
    std::vector<std::string> waiting(text_.size());
    for (std::int64_t n = 0;; ++n) {
      open.clear();
      for (std::int64_t i = 0; i < session_.streams(); ++i)
        if (n < std::min(left_[static_cast<std::size_t>(i)], wanted_.steps) &&
            !text_[static_cast<std::size_t>(i)].stopped())
          open.push_back(i);
      if (open.empty()) break;
      drawn.resize(open.size());
      session_.step(drawn, open);
      for (std::size_t k = 0; k < open.size(); ++k) {
        const auto i = static_cast<std::size_t>(open[k]);
        tokens_[i].push_back(drawn[k]);
        const std::string added = text_[i].add(drawn[k]);
        if (!shown) continue;
        if (i > 0) {
          waiting[i] += added;
          continue;
        }
        fmt::print("{}", added);
        // Where nobody reads the text, only its state may be wanted.
        if (wanted_.save_states.empty())
          flush_output();
        else
          std::fflush(stdout);
      }
    }
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      left_[i] = text_[i].stopped() ? 0 : left_[i] - std::ssize(tokens_[i]);
      if (!shown) continue;
      if (i > 0) fmt::print("{}{}", plan_.prompt, waiting[i]);
      if (ends(left_[i], tokens_[i])) fmt::print("{}", text_[i].finish());
      fmt::print("{}", end_of(plan_, left_[i]));
    }
  }

  /// Appends what was drawn.
  void move_to(DrawnTexts& all) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (!wanted_.save_states.empty())
        all.streams.push_back({left_[i], text_[i].context(), session_.save(static_cast<std::int64_t>(i))});
      all.tokens.push_back(std::move(tokens_[i]));
      all.left.push_back(left_[i]);
    }
  }

 private:
  /// Puts a stream at the first token to draw of text `place`. The result is the number of tokens left.
  std::int64_t begin(std::int64_t stream, std::size_t place) {
    if (!plan_.begun.empty()) {
      session_.restore(stream, plan_.begun[place].state);
      return plan_.begun[place].left;
    }
    SamplingOptions sampling = wanted_.sampling;
    sampling.seed += place;
    // A prompt is read once for each label.
    if (const auto labels = std::ssize(plan_.labels); stream >= labels && !plan_.tokens.empty()) {
      session_.fork(stream, stream - labels, sampling.seed);
      return plan_.length;
    }
    session_.begin(stream, plan_.labels[place % plan_.labels.size()], sampling);
    session_.prefill(stream, plan_.tokens);
    return plan_.length;
  }

  const TextPlan& plan_;
  const Texts& wanted_;
  Session session_;
  std::vector<ContinuedText> text_;
  std::vector<std::vector<std::int32_t>> tokens_;
  std::vector<std::int64_t> left_;
};

DrawnTexts draw_texts(const std::shared_ptr<const Model>& model, const TokenText& text, const TextPlan& plan,
                      const Texts& wanted, Share share, bool shown) {
  DrawnTexts drawn;
  for (std::int64_t first = share.begin; first < share.end; first += wanted.streams) {
    const Share here{first, std::min(share.end, first + wanted.streams)};
    TextsTogether together(model, text, plan, wanted, here);
    together.draw(shown);
    together.move_to(drawn);
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
    ContinuedText rest(text, plan, wanted, i);
    std::string one = plan.prompt;
    for (const std::int32_t token : drawn.tokens[i]) one += rest.add(token);
    if (ends(drawn.left[i], drawn.tokens[i])) one += rest.finish();
    const char* end = end_of(plan, drawn.left[i]);
    written.together += one + end;
    if (shown && static_cast<std::int64_t>(i) >= share.end) fmt::print("{}{}", one, end);
    written.tokens += std::ssize(drawn.tokens[i]);
    written.texts.push_back({one, std::move(drawn.tokens[i]), rest.stopped()});
  }
  return written;
}

void report_texts(const Texts& wanted, const WrittenTexts& written, double seconds) {
  const double rate = static_cast<double>(written.tokens) / seconds;
  Progress().show(fmt::format("{} tokens, {:.0f} tokens/s", written.tokens, rate), true);
  if (!wanted.json) return;
  Json results = Json::array();
  for (const WrittenText& one : written.texts) {
    Json result = {{"text", one.text}, {"tokens", one.tokens}};
    if (!wanted.stop.empty()) result["stopped"] = one.stopped;
    results.push_back(std::move(result));
  }
  print_json({{"tokens", written.tokens}, {"tokens_per_second", rate}, {"results", results}});
}

}  // namespace

void write_texts(const std::shared_ptr<const Model>& model, const Texts& wanted, Communicator& ranks) {
  const TokenText text(*model, wanted.residues);
  if (!wanted.stop.empty() && text.numbers())
    fail<UsageError>("generate",
                     "expected no --stop for a model whose tokens are written as numbers, got one");
  if (std::ranges::count(wanted.stop, "") > 0)
    fail<UsageError>("generate", "expected --stop with a text, got an empty one");
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
