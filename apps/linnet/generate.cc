#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "answers.h"
#include "base/fail.h"
#include "base/lists.h"
#include "base/names.h"
#include "checks.h"
#include "commands.h"
#include "continuation.h"
#include "data/fasta.h"
#include "generation/stream_file.h"
#include "io/digest.h"
#include "io/file.h"
#include "metrics_file.h"
#include "outputs.h"
#include "pictures.h"
#include "pieces.h"
#include "rank_threads.h"
#include "ranks.h"
#include "run_record.h"
#include "series/paths.h"
#include "texts.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string model, prompt, prompt_file, complete, out, states, save_states, source, source_file;
  std::int64_t count = 0, length = 0, streams = 64, columns = 0;
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();
  std::vector<std::string> named_labels;  ///< numbers or names, as they were given
  std::vector<std::int64_t> labels;       ///< the same as numbers
  std::vector<std::string> stop;
  SamplingOptions sampling;
  std::int64_t first_pitch = Pieces{}.first_pitch;
  double tempo = Pieces{}.tempo;
  bool no_cache = false, json = false;
  int threads = 0;
  std::vector<Option> options;  ///< all of the command
};

Session::Options session_options(const Arguments& arguments) {
  return {.cache = !arguments.no_cache, .threads = arguments.threads};
}

/// Where pictures of a run go unless --out says otherwise.
std::string default_picture(Communicator& ranks, const std::string& model) {
  const std::optional<fs::path> run = run_of(model);
  if (!run) fail<UsageError>("generate", "expected --out FILE.png for pictures, got none");
  std::string picture = (*run / "samples/generated.png").string();
  on_first_rank(ranks, [&] {
    create_folders(*run / "samples");
    check_outputs("generate", {{"--out", picture}});
  });
  return picture;
}

/// Throws UsageError, ending with `where`, for options that are given and have no meaning there.
void refuse(const Arguments& arguments, std::initializer_list<std::string_view> options, const char* where) {
  for (const Option& option : arguments.options)
    if (option.count() > 0 && std::ranges::count(options, option.name()) > 0)
      fail<UsageError>("generate", "expected no {} {}, got one", option.name(), where);
}

void check_picture_options(const Arguments& arguments) {
  refuse(arguments, {"--prompt", "--prompt-file", "--length", "--stop", "--first-pitch", "--beats"},
         "for a model of pictures");
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
  if (arguments.out.empty()) refuse(arguments, {"--columns"}, "without --out");
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

/// Whether tokens are residues of proteins: those of a run on FASTA, or of a model without a run that has as
/// many.
bool writes_residues(const ModelConfig& config, const std::string& model) {
  if (config.vocabulary != std::ssize(residues)) return false;
  const std::optional<fs::path> run = run_of(model);
  return !run || RunRecord::read(*run).config.data.kind == "fasta";
}

/// Text, the letters of proteins, or tokens as numbers.
void write_text(const std::shared_ptr<const Model>& model, const Arguments& arguments, Communicator& ranks) {
  if (const auto columns = columns_of_model(arguments.model); columns && columns->sound)
    fail<UsageError>("generate",
                     "expected --prompt-file with the sound to continue and --out with a .wav file for a "
                     "model of sound, got {}",
                     arguments.out.empty() ? "none" : arguments.out);
  refuse(arguments, {"--complete", "--columns", "--first-pitch", "--beats"}, "for a model of text");
  for (const char* of_others : {".png", ".jpg", ".jpeg", ".svg", ".wav", ".mid", ".safetensors"})
    if (extension_of(arguments.out) == of_others)
      fail<UsageError>("generate", "expected --out with the name of a text file for a model of text, got {}",
                       arguments.out);
  write_texts(model,
              {.prompt = arguments.prompt,
               .prompt_file = arguments.prompt_file,
               .out = arguments.out,
               .states = arguments.states,
               .save_states = arguments.save_states,
               .count = arguments.count,
               .streams = arguments.streams,
               .length = arguments.length,
               .steps = arguments.steps,
               .labels = arguments.labels,
               .sampling = arguments.sampling,
               .session = session_options(arguments),
               .stop = arguments.stop,
               .residues = writes_residues(model->config(), arguments.model),
               .json = arguments.json},
              ranks);
}

/// Sequences of a model of several fields, or of pitches.
void draw_pieces(const std::shared_ptr<const Model>& model, const Arguments& arguments, Communicator& ranks) {
  if (arguments.labels.size() > 1)
    fail<UsageError>("generate", "expected one --label for sequences of several fields, got {}",
                     arguments.labels.size());
  refuse(arguments,
         {"--prompt", "--complete", "--columns", "--states", "--save-states", "--stop", "--no-cache"},
         "for a model of several fields");
  // A file of tokens has no pitches, and a picture no tempo.
  if (const std::string extension = extension_of(arguments.out); extension == ".safetensors")
    refuse(arguments, {"--first-pitch", "--beats"}, "with --out of a .safetensors file");
  else if (extension == ".png")
    refuse(arguments, {"--beats"}, "with --out of a .png file");
  const Pieces pieces{
      .out = arguments.out,
      .prompt = arguments.prompt_file,
      .count = std::max<std::int64_t>(arguments.count, 1),
      .length = arguments.length > 0 ? arguments.length : model->config().length,
      .label = arguments.labels.empty() ? (model->config().classes > 0 ? 0 : -1) : arguments.labels[0],
      .first_pitch = arguments.first_pitch,
      .tempo = arguments.tempo,
      .sampling = arguments.sampling,
      .threads = arguments.threads,
      .streams = arguments.streams};
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
    fmt::print("{} sequence{} of {} steps, {:.0f} steps/s: {}\n", pieces.count, pieces.count == 1 ? "" : "s",
               pieces.length, rate, pieces.out);
}

/// Answers to sources.
void answer(const std::shared_ptr<const Model>& model, const Arguments& arguments, Communicator& ranks) {
  if (arguments.source.empty() && arguments.source_file.empty())
    fail<UsageError>("generate",
                     "expected --source or --source-file for an encoder–decoder model, got neither");
  refuse(arguments,
         {"--prompt", "--prompt-file", "--complete", "--columns", "--count", "--label", "--states",
          "--save-states", "--stop", "--first-pitch", "--beats", "--no-cache"},
         "with --source");
  write_answers(model,
                {.source = arguments.source,
                 .source_file = arguments.source_file,
                 .out = arguments.out,
                 .length = arguments.length,
                 .sampling = arguments.sampling,
                 .json = arguments.json,
                 .threads = arguments.threads,
                 .streams = arguments.streams},
                ranks);
}

/// What follows a series or a sound.
void continue_numbers(const std::shared_ptr<const Model>& model, const Arguments& arguments) {
  refuse(arguments,
         {"--prompt", "--complete", "--columns", "--count", "--label", "--states", "--save-states",
          "--streams", "--stop", "--first-pitch", "--beats", "--no-cache"},
         "for a series or sound");
  const ModelConfig& config = model->config();
  if (config.columns > 0) refuse(arguments, {"--top-k", "--top-p"}, "for real numbers");
  if (predicts_means(config))
    refuse(arguments, {"--seed", "--temperature"}, "for a model that predicts means alone");
  write_continuation(model, {.model = arguments.model,
                             .prompt = arguments.prompt_file,
                             .out = arguments.out,
                             .length = arguments.length,
                             .sampling = arguments.sampling,
                             .threads = arguments.threads,
                             .json = arguments.json});
}

/// The labels that are given by their names in the model, or else by their numbers.
std::vector<std::int64_t> labels_of(const Model& model, const std::vector<std::string>& given) {
  const std::vector<std::string>& names = model.assets().class_names;
  std::vector<std::int64_t> labels;
  for (const std::string& label : given) {
    const auto found = std::ranges::find(names, as_json_text(label));
    const auto number = whole_numbers(label, 0, std::numeric_limits<std::int64_t>::max());
    if (found == names.end() && number) {
      labels.push_back(number->front());
      model.config().first_input(labels.back());
      continue;
    }
    if (found == names.end())
      fail<UsageError>("generate", "expected --label with numbers{}, got \"{}\"",
                       names.empty() ? ""
                                     : fmt::format(" or names of the labels {}",
                                                   shortened(fmt::format("{}", fmt::join(names, ", ")))),
                       shortened(label));
    labels.push_back(found - names.begin());
  }
  return labels;
}

/// What all ranks are to have in common. Standard input is read by one of them for all.
RankWork work_of(const Model& model, const Arguments& arguments) {
  RankWork work{model, arguments.options, {"model", "--out", "--threads", "--json", "--columns"}, {}};
  for (const auto& [option, file] : {std::pair("--prompt-file", arguments.prompt_file),
                                     {"--source-file", arguments.source_file},
                                     {"--complete", arguments.complete},
                                     {"--states", arguments.states}}) {
    work.apart.emplace_back(option);
    if (!file.empty() && file != "-")
      work.inputs.push_back({option, "a file with the digest " + digest_of_file(file)});
  }
  work.apart.emplace_back("--save-states");
  return work;
}

void run(Arguments arguments, Communicator& ranks) {
  arguments.sampling.check();
  on_first_rank(ranks, [&] {
    check_outputs("generate", {{"--out", arguments.out}, {"--save-states", arguments.save_states}},
                  {{"the model's", arguments.model},
                   {"--prompt-file", arguments.prompt_file},
                   {"--source-file", arguments.source_file},
                   {"--complete", arguments.complete},
                   {"--states", arguments.states}});
  });
  arguments.threads = threads_of_rank(ranks, arguments.threads);
  const std::shared_ptr<const Model> model = Model::load(arguments.model);
  on_first_rank(ranks, [&] { note_better_evaluation(arguments.model); });
  if (model->config().objective == Objective::same_step)
    fail<UsageError>("generate",
                     "expected a model that predicts the next step, got one of \"same-step\", which linnet "
                     "filter runs over sound");
  model->config().check_generates();
  arguments.labels = labels_of(*model, arguments.named_labels);
  if (ranks.size() > 1) require_same_work(ranks, work_of(*model, arguments));
  const bool sources = !arguments.source.empty() || !arguments.source_file.empty();
  if (sources && !answers_sources(*model))
    fail<UsageError>("generate",
                     "expected an encoder–decoder model or one of pairs for --source, got a model without an "
                     "encoder whose tokens are not those of pairs");
  if (is_continuation(model->config(), arguments.prompt_file, arguments.out))
    on_first_rank(ranks, [&] { continue_numbers(model, arguments); });  // a single series or sound
  else if (sources || model->config().has_encoder())
    answer(model, arguments, ranks);
  else if (model->config().field_sizes().size() > 1 ||
           (model->config().image_height == 0 && extension_of(arguments.out) == ".mid"))
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
  add("--label", arguments->named_labels,
      "classes to draw in turn, by name or number, 3,1,4; default: all for pictures, 0 for others; sequences "
      "of several fields take one")
      .delimiter(',');
  const Option prompt =
      add("--prompt", arguments->prompt, "text or residues to continue; numbers for models of other tokens")
          .may_be_empty();
  add("--prompt-file", arguments->prompt_file,
      "file with the text to continue, - for standard input; a series or a sound; several fields: a .mid or "
      ".safetensors file whose first piece is continued")
      .excludes(prompt);
  const Option source = add("--source", arguments->source,
                            "encoder–decoder models and models of pairs: the source to write an answer to");
  add("--source-file", arguments->source_file, "file with a source on each line, - for standard input")
      .excludes(source);
  add("--complete", arguments->complete,
      "complete the upper halves of the pictures in a PNG, JPEG, IDX or CIFAR-10 file (.bin)");
  add("--length", arguments->length,
      "tokens per text, rows of a series, frames of sound; default: model.length tokens, the rows of a "
      "step's prediction, a second")
      .check(whole(1, most_count));
  Option stop = add("--stop", arguments->stop,
                    "models of text: end a text before this one occurs in what is written, may be repeated");
  stop.allow_extra_args(false);
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
      .check(whole_of_64_bits());
  Option save_states =
      command.add_option("--save-states", arguments->save_states, "file for the streams that --steps stops");
  Option steps = command.add_option(
      "--steps", arguments->steps,
      "stop each stream after this number of tokens, to continue with --states; default: at its end");
  steps.check(whole(1)).needs(save_states).excludes(stop);
  save_states.needs(steps);
  Option states =
      command.add_option("--states", arguments->states,
                         "continue the streams in a file of --save-states, with their own options");
  for (const Option& option : of_new_streams) states.excludes(option);
  command
      .add_option("--streams", arguments->streams,
                  "pictures, texts, sequences or answers drawn at the same time")
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
  add_threads_of_rank(command, arguments->threads);
  command.add_flag("--json", arguments->json, "print the result as JSON");
  arguments->options = command.options();
  command.callback([arguments, &ranks] { run(*arguments, ranks); });
}

}  // namespace linnet
