#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "answers.h"
#include "base/fail.h"
#include "checks.h"
#include "comm/gather.h"
#include "commands.h"
#include "continuation.h"
#include "generation/stream_file.h"
#include "io/file.h"
#include "outputs.h"
#include "pictures.h"
#include "pieces.h"
#include "ranks.h"
#include "run_record.h"
#include "token_text.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string model, prompt, prompt_file, complete, out, states, save_states, source, source_file;
  std::int64_t count = 0, length = 0, streams = 64, columns = 0;
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> labels;
  SamplingOptions sampling;
  std::int64_t first_pitch = Pieces{}.first_pitch;
  double tempo = Pieces{}.tempo;
  bool no_cache = false, json = false;
  int threads = 0;
};

Session::Options session_options(const Arguments& arguments) {
  return {.cache = !arguments.no_cache, .threads = arguments.threads};
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Where pictures of a run go unless --out says otherwise.
std::string default_picture(Communicator& ranks, const std::string& model) {
  const std::optional<fs::path> run = run_of(model);
  if (!run) fail<UsageError>("generate", "expected --out FILE.png for pictures, got none");
  on_first_rank(ranks, [&] { create_folders(*run / "samples"); });
  return (*run / "samples/generated.png").string();
}

void check_picture_options(const Arguments& arguments) {
  if (!arguments.prompt.empty() || !arguments.prompt_file.empty() || arguments.length != 0)
    fail<UsageError>("generate",
                     "expected --prompt, --prompt-file and --length for models of text, got one of pictures");
  if (const std::string extension = extension_of(arguments.out); !extension.empty() && extension != ".png")
    fail<UsageError>("generate", "expected --out FILE.png for pictures, got {}", arguments.out);
}

/// What the options ask for: new pictures, the lower halves of given ones, or the rest of saved streams.
Drawing drawing_of(const ModelConfig& config, const Arguments& arguments) {
  Drawing drawing{.labels = arguments.labels, .sampling = arguments.sampling, .steps = arguments.steps};
  drawing.count = arguments.count == 0 ? 64 : arguments.count;
  if (!arguments.complete.empty()) {
    drawing.prompts = upper_halves(config, arguments.complete, arguments.count);
    drawing.count = static_cast<std::int64_t>(drawing.prompts.size());
  }
  if (!arguments.states.empty()) {
    drawing.begun = read_streams(arguments.states);
    drawing.count = static_cast<std::int64_t>(drawing.begun.size());
  }
  drawing.streams = std::min(arguments.streams, drawing.count);
  drawing.session = session_options(arguments);
  drawing.session.capacity = config.length;
  return drawing;
}

void report_pictures(const Arguments& arguments, const std::vector<std::vector<std::int32_t>>& examples,
                     double seconds, Progress& progress) {
  const std::size_t count = examples.size();
  const bool saves = !arguments.save_states.empty();
  const double rate = static_cast<double>(count) / seconds;
  if (saves)
    progress.show(fmt::format("{} streams in {:.2f} s: {}", count, seconds, arguments.save_states), true);
  else
    progress.show(
        fmt::format("{} images in {:.2f} s, {:.3g} images/s: {}", count, seconds, rate, arguments.out), true);
  if (!arguments.json) return;
  Json json = {{"out", arguments.out}, {"images", count}, {"seconds", seconds}};
  if (saves)
    json["states"] = arguments.save_states;
  else
    json["images_per_second"] = rate;
  json["results"] = Json::array();
  for (const std::vector<std::int32_t>& tokens : examples)
    json["results"].push_back(Json{{"tokens", tokens}});
  print_json(json);
}

void draw_pictures(const std::shared_ptr<const Model>& model, Arguments arguments, Communicator& ranks) {
  if (arguments.out.empty() && arguments.save_states.empty())
    arguments.out = default_picture(ranks, arguments.model);
  check_picture_options(arguments);
  const Drawing drawing = drawing_of(model->config(), arguments);
  if (!arguments.out.empty()) check_picture_grid(model->config(), drawing.count, arguments.columns);
  const bool saves = !arguments.save_states.empty();
  Progress progress;
  std::vector<SavedStream> saved;
  const auto start = std::chrono::steady_clock::now();
  const bool first = ranks.rank() == 0;
  const auto examples =
      draw_examples(model, drawing, first ? &progress : nullptr, saves ? &saved : nullptr, &ranks);
  if (!first) return;
  const double seconds = seconds_since(start);
  if (saves) write_streams(arguments.save_states, saved);
  if (!arguments.out.empty())
    write_png(arguments.out, picture_grid(model->config(), examples, arguments.columns));
  report_pictures(arguments, examples, seconds, progress);
}

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

std::string prompt_of(const Arguments& arguments, Communicator& ranks) {
  if (arguments.prompt_file.empty()) return arguments.prompt;
  std::string prompt = read_input(ranks, arguments.prompt_file);
  if (prompt.empty())
    fail("prompt", "expected something to continue in {}, got an empty file", arguments.prompt_file);
  return prompt;
}

TextPlan plan_of(const ModelConfig& config, const TokenText& text, const Arguments& arguments,
                 Communicator& ranks) {
  TextPlan plan;
  plan.prompt = prompt_of(arguments, ranks);
  plan.tokens = text.tokens(plan.prompt);
  // Numbers that follow the prompt must not run into its last one.
  if (text.numbers() && !plan.prompt.empty() && plan.prompt.back() != ' ') plan.prompt += ' ';
  if (!arguments.states.empty()) plan.begun = read_streams(arguments.states);
  plan.count = !plan.begun.empty()    ? static_cast<std::int64_t>(plan.begun.size())
               : arguments.count == 0 ? 1
                                      : arguments.count;
  plan.length = length_of_text(config, static_cast<std::int64_t>(plan.tokens.size()), arguments.length);
  plan.labels = arguments.labels;
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

/// Adds the next `steps` tokens to the known ones, printed one by one as text where `shown`.
void draw_tokens(Session& session, const TokenText& text, std::vector<std::int32_t>& tokens,
                 std::int64_t steps, bool shown) {
  for (std::int64_t n = 0; n < steps; ++n) {
    std::int32_t token = 0;
    session.step(std::span(&token, 1));
    tokens.push_back(token);
    if (!shown) continue;
    fmt::print("{}", text.added(tokens, tokens.size() - 1));
    std::fflush(stdout);
  }
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

/// The tokens before those that are drawn.
std::vector<std::int32_t> known_of(const TextPlan& plan) {
  return plan.begun.empty() ? plan.tokens : std::vector<std::int32_t>();
}

/// A single text that is to go on has no end yet.
const char* end_of(const TextPlan& plan, std::int64_t left) {
  return left > 0 && plan.count == 1 ? "" : "\n";
}

/// With --json, and with --out, standard output is not for the text.
bool shows_texts(const Arguments& arguments) { return arguments.out.empty() && !arguments.json; }

/// The texts of a share, printed while they are drawn where `shown`.
DrawnTexts draw_texts(const std::shared_ptr<const Model>& model, const TokenText& text, const TextPlan& plan,
                      const Arguments& arguments, Share share, bool shown) {
  DrawnTexts drawn;
  for (std::int64_t i = share.begin; i < share.end; ++i) {
    Session session(model, 1, session_options(arguments));
    const std::int64_t left = begin_text(session, plan, static_cast<std::size_t>(i), arguments.sampling);
    const std::int64_t steps = std::min(left, arguments.steps);
    if (shown) fmt::print("{}", plan.prompt);
    std::vector<std::int32_t> tokens = known_of(plan);
    const auto known = std::ssize(tokens);
    draw_tokens(session, text, tokens, steps, shown);
    drawn.tokens.emplace_back(tokens.begin() + known, tokens.end());
    drawn.left.push_back(left - steps);
    if (!arguments.save_states.empty()) drawn.streams.push_back({left - steps, {}, session.save(0)});
    if (shown) fmt::print("{}", end_of(plan, left - steps));
  }
  return drawn;
}

/// The texts of all ranks on rank 0.
WrittenTexts write_texts(const std::shared_ptr<const Model>& model, const TokenText& text,
                         const TextPlan& plan, const Arguments& arguments, Communicator& ranks) {
  const Share share = share_of(ranks, plan.count);
  const bool shown = shows_texts(arguments) && ranks.rank() == 0;
  DrawnTexts drawn = draw_texts(model, text, plan, arguments, share, shown);
  drawn.tokens = gather_lists(ranks, std::move(drawn.tokens));
  drawn.left = gather(ranks, std::move(drawn.left));
  WrittenTexts written;
  written.streams = gather_streams(ranks, std::move(drawn.streams));
  for (std::size_t i = 0; i < drawn.tokens.size(); ++i) {
    std::vector<std::int32_t> tokens = known_of(plan);
    const std::size_t known = tokens.size();
    tokens.insert(tokens.end(), drawn.tokens[i].begin(), drawn.tokens[i].end());
    const std::string one = plan.prompt + text.added(tokens, known), end = end_of(plan, drawn.left[i]);
    written.together += one + end;
    if (shown && static_cast<std::int64_t>(i) >= share.end) fmt::print("{}{}", one, end);
    written.tokens += std::ssize(drawn.tokens[i]);
    written.texts.push_back({one, std::move(drawn.tokens[i])});
  }
  return written;
}

void report_texts(const Arguments& arguments, const WrittenTexts& written, double seconds) {
  const double rate = static_cast<double>(written.tokens) / seconds;
  Progress().show(fmt::format("{} tokens, {:.0f} tokens/s", written.tokens, rate), true);
  if (!arguments.json) return;
  Json results = Json::array();
  for (const WrittenText& one : written.texts)
    results.push_back(Json{{"text", one.text}, {"tokens", one.tokens}});
  print_json({{"tokens", written.tokens}, {"tokens_per_second", rate}, {"results", results}});
}

void write_text(const std::shared_ptr<const Model>& model, const Arguments& arguments, Communicator& ranks) {
  if (!arguments.complete.empty() || arguments.columns != 0)
    fail<UsageError>("generate", "expected --complete and --columns for models of pictures, got one of text");
  for (const char* of_pictures : {".png", ".jpg", ".jpeg", ".svg", ".wav"})
    if (extension_of(arguments.out) == of_pictures)
      fail<UsageError>("generate", "expected --out with the name of a text file for a model of text, got {}",
                       arguments.out);
  const TokenText text(*model);
  const TextPlan plan = plan_of(model->config(), text, arguments, ranks);
  const auto start = std::chrono::steady_clock::now();
  const WrittenTexts written = write_texts(model, text, plan, arguments, ranks);
  if (ranks.rank() != 0) return;
  const double seconds = seconds_since(start);
  if (!arguments.save_states.empty()) write_streams(arguments.save_states, written.streams);
  if (!arguments.out.empty()) write_file_atomically(arguments.out, written.together);
  report_texts(arguments, written, seconds);
}

/// Sequences of a model of several fields.
void draw_pieces(const std::shared_ptr<const Model>& model, const Arguments& arguments, Communicator& ranks) {
  for (const auto& [option, given] : {std::pair("--prompt", !arguments.prompt.empty()),
                                      {"--prompt-file", !arguments.prompt_file.empty()},
                                      {"--complete", !arguments.complete.empty()},
                                      {"--columns", arguments.columns != 0},
                                      {"--states", !arguments.states.empty()},
                                      {"--save-states", !arguments.save_states.empty()},
                                      {"--no-cache", arguments.no_cache}})
    if (given) fail<UsageError>("generate", "expected no {} for a model of several fields", option);
  const Pieces pieces{
      .out = arguments.out,
      .count = std::max<std::int64_t>(arguments.count, 1),
      .length = arguments.length > 0 ? arguments.length : model->config().length,
      .label = arguments.labels.empty() ? (model->config().classes > 0 ? 0 : -1) : arguments.labels[0],
      .first_pitch = arguments.first_pitch,
      .tempo = arguments.tempo,
      .sampling = arguments.sampling,
      .threads = arguments.threads};
  check_pieces(model->config(), pieces);
  const auto start = std::chrono::steady_clock::now();
  write_pieces(model, pieces, ranks);
  if (ranks.rank() != 0) return;
  const double seconds = seconds_since(start);
  const double rate = static_cast<double>(pieces.count * pieces.length) / seconds;
  if (arguments.json)
    print_json({{"out", pieces.out},
                {"count", pieces.count},
                {"length", pieces.length},
                {"steps_per_second", rate}});
  else
    fmt::print("{} sequences of {} steps, {:.0f} steps/s: {}\n", pieces.count, pieces.length, rate,
               pieces.out);
}

/// Answers of an encoder–decoder model to sources.
void answer(const std::shared_ptr<const Model>& model, const Arguments& arguments, Communicator& ranks) {
  if (arguments.source.empty() && arguments.source_file.empty())
    fail<UsageError>("generate",
                     "expected --source or --source-file for an encoder–decoder model, got neither");
  for (const auto& [option, given] : {std::pair("--prompt", !arguments.prompt.empty()),
                                      {"--prompt-file", !arguments.prompt_file.empty()},
                                      {"--complete", !arguments.complete.empty()},
                                      {"--columns", arguments.columns != 0},
                                      {"--count", arguments.count != 0},
                                      {"--label", !arguments.labels.empty()},
                                      {"--states", !arguments.states.empty()},
                                      {"--save-states", !arguments.save_states.empty()},
                                      {"--no-cache", arguments.no_cache}})
    if (given) fail<UsageError>("generate", "expected no {} with --source", option);
  write_answers(model,
                {.source = arguments.source,
                 .source_file = arguments.source_file,
                 .out = arguments.out,
                 .length = arguments.length,
                 .sampling = arguments.sampling,
                 .json = arguments.json,
                 .threads = arguments.threads},
                ranks);
}

/// What follows a series or a sound.
void continue_numbers(const std::shared_ptr<const Model>& model, const Arguments& arguments) {
  for (const auto& [option, given] : {std::pair("--prompt", !arguments.prompt.empty()),
                                      {"--complete", !arguments.complete.empty()},
                                      {"--columns", arguments.columns != 0},
                                      {"--count", arguments.count != 0},
                                      {"--label", !arguments.labels.empty()},
                                      {"--states", !arguments.states.empty()},
                                      {"--save-states", !arguments.save_states.empty()},
                                      {"--no-cache", arguments.no_cache}})
    if (given) fail<UsageError>("generate", "expected no {} for a series or sound", option);
  write_continuation(model, {.model = arguments.model,
                             .prompt = arguments.prompt_file,
                             .out = arguments.out,
                             .length = arguments.length,
                             .sampling = arguments.sampling,
                             .threads = arguments.threads,
                             .json = arguments.json});
}

void run(const Arguments& arguments, Communicator& ranks) {
  arguments.sampling.check();
  on_first_rank(ranks, [&] {
    check_outputs("generate", {{"--out", arguments.out}, {"--save-states", arguments.save_states}},
                  {{"the model's", arguments.model},
                   {"--prompt-file", arguments.prompt_file},
                   {"--source-file", arguments.source_file},
                   {"--complete", arguments.complete},
                   {"--states", arguments.states}});
  });
  const std::shared_ptr<const Model> model = Model::load(arguments.model);
  model->config().check_generates();
  for (const std::int64_t label : arguments.labels) model->config().first_input(label);
  if (!model->config().has_encoder() && (!arguments.source.empty() || !arguments.source_file.empty()))
    fail<UsageError>("generate",
                     "expected an encoder–decoder model for --source, got a model without an encoder");
  if (is_continuation(model->config(), arguments.prompt_file, arguments.out))
    on_first_rank(ranks, [&] { continue_numbers(model, arguments); });  // a single series or sound
  else if (model->config().has_encoder())
    answer(model, arguments, ranks);
  else if (model->config().field_sizes().size() > 1)
    draw_pieces(model, arguments, ranks);
  else if (model->config().image_height > 0)
    draw_pictures(model, arguments, ranks);
  else
    write_text(model, arguments, ranks);
}

}  // namespace

void add_generate(Command& program, Communicator& ranks) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      program.add_subcommand("generate", "Draw pictures, write text or compose music with a trained model");
  command.footer(
      "Examples: linnet generate runs/digits --count 64 --out samples.png\n"
      "          linnet generate runs/text --prompt \"ROMEO:\" --length 500 --temperature 0.8\n"
      "          linnet generate runs/reverse --source-file strings.txt --temperature 0");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  std::vector<Option> of_new_streams;
  const auto add = [&](const char* name, auto& value, const char* help) {
    return of_new_streams.emplace_back(command.add_option(name, value, help));
  };
  add("--count", arguments->count, "number of pictures (default 64) or texts (default 1)")
      .check(whole(1, most_count));
  command.add_option(
      "--out", arguments->out,
      "PNG file for pictures (default: samples/generated.png of the run), or file for text (default: "
      "standard output); several fields: a .safetensors, .mid or .png file; what follows a series or "
      "a sound: a .csv or .wav file");
  add("--label", arguments->labels, "classes to draw in turn, 3,1,4; default: all")
      .delimiter(',')
      .check(whole(0));
  const Option prompt =
      add("--prompt", arguments->prompt, "text to continue; numbers if tokens are not bytes");
  add("--prompt-file", arguments->prompt_file,
      "file with the text to continue, - for standard input; a series or a sound")
      .excludes(prompt);
  const Option source =
      add("--source", arguments->source, "encoder–decoder models: the source to write an answer to");
  add("--source-file", arguments->source_file, "file with a source on each line, - for standard input")
      .excludes(source);
  add("--complete", arguments->complete,
      "complete the upper halves of the pictures in a PNG, an IDX or a CIFAR-10 file (.bin)");
  add("--length", arguments->length,
      "tokens per text, rows of a series, frames of sound; default: model.length tokens, the rows of a "
      "step's prediction, a second")
      .check(whole(1, most_count));
  add("--temperature", arguments->sampling.temperature,
      "below 1: more probable; above 1: more varied; 0: greedy")
      .capture_default_str()
      .check(number(0));
  add("--top-k", arguments->sampling.top_k, "sample from the k most probable tokens only; default: from all")
      .check(whole(1));
  add("--top-p", arguments->sampling.top_p,
      "sample from the smallest set of tokens with this total probability")
      .capture_default_str()
      .check(number(0, 1, true));
  add("--seed", arguments->sampling.seed, "seed of the first stream; each next one adds 1")
      .capture_default_str()
      .check(whole(0));
  Option save_states =
      command.add_option("--save-states", arguments->save_states, "file for the streams that --steps stops");
  Option steps = command.add_option(
      "--steps", arguments->steps,
      "stop each stream after this number of tokens, to continue with --states; default: at its end");
  steps.check(whole(1)).needs(save_states);
  save_states.needs(steps);
  Option states =
      command.add_option("--states", arguments->states,
                         "continue the streams in a file of --save-states, with their own options");
  for (const Option& option : of_new_streams) states.excludes(option);
  command.add_option("--streams", arguments->streams, "pictures drawn at the same time")
      .capture_default_str()
      .check(whole(1, most_count));
  command.add_option("--columns", arguments->columns, "columns of the grid; default: as many as rows")
      .check(whole(1, most_count));
  command
      .add_option("--first-pitch", arguments->first_pitch,
                  "several fields: MIDI's number of the pitch of token 1; token 0 is silence")
      .capture_default_str()
      .check(whole(0, 127));
  command.add_option("--beats", arguments->tempo, "several fields: quarter notes, of four steps, per minute")
      .capture_default_str()
      .check(number(4, 1000));
  command.add_flag("--no-cache", arguments->no_cache, "compute every token from the whole sequence again");
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([arguments, &ranks] { run(*arguments, ranks); });
}

}  // namespace linnet
