#include <fmt/core.h>

#include <cstdio>

#include "base/fail.h"
#include "base/threads.h"
#include "checks.h"
#include "commands.h"
#include "data/idx.h"
#include "io/file.h"
#include "linnet/dataset.h"
#include "pictures.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string model, prompt, prompt_file, complete, out;
  std::int64_t count = 0, length = 0, streams = 64, columns = 0;
  std::vector<std::int64_t> labels;
  SamplingOptions sampling;
  bool no_cache = false, json = false;
  int threads = 0;
};

/// The upper halves of the pictures in a PNG or IDX file, as tokens.
std::vector<std::vector<std::int32_t>> upper_halves(const ModelConfig& config, const std::string& path,
                                                    std::int64_t count) {
  const std::int64_t width = config.image_width, height = config.image_height, pixels = width * height;
  std::vector<std::uint8_t> values;
  std::int64_t found = 1, found_height, found_width;
  if (fs::path(path).extension() == ".png") {
    const Image image = read_png(path);
    if (image.channels != 1)
      fail("complete", "expected a grey picture in {}, got {} channels", path, image.channels);
    found_height = image.height;
    found_width = image.width;
    values = image.pixels;
  } else {
    IdxArray array = read_idx(path);
    if (array.shape.size() != 3)
      fail("complete", "expected pictures [count, height, width] in {}, got {}", path,
           to_string(array.shape));
    found = array.shape[0];
    found_height = array.shape[1];
    found_width = array.shape[2];
    values = std::move(array.values);
  }
  if (found_height != height || found_width != width)
    fail("complete", "expected pictures of {} × {} as the model draws, got {} × {} in {}", height, width,
         found_height, found_width, path);
  if (found == 0) fail("complete", "expected at least 1 picture in {}, got 0", path);
  if (count > found) fail("complete", "expected at least {} pictures in {}, got {}", count, path, found);
  std::vector<std::vector<std::int32_t>> halves(static_cast<std::size_t>(count == 0 ? found : count));
  for (std::size_t i = 0; i < halves.size(); ++i)
    for (std::int64_t p = 0; p < height / 2 * width; ++p)
      halves[i].push_back(token_of_pixel(values[i * pixels + p], config.vocabulary));
  return halves;
}

void draw_pictures(const std::shared_ptr<const Model>& model, const Arguments& arguments) {
  if (arguments.out.empty()) fail<UsageError>("generate", "expected --out FILE.png for pictures, got none");
  if (!arguments.prompt.empty() || !arguments.prompt_file.empty() || arguments.length != 0)
    fail<UsageError>("generate",
                     "expected --prompt, --prompt-file and --length for models of text, got one of pictures");
  require_file_path(arguments.out);
  std::vector<std::vector<std::int32_t>> prompts;
  std::int64_t count = arguments.count == 0 ? 64 : arguments.count;
  if (!arguments.complete.empty()) {
    prompts = upper_halves(model->config(), arguments.complete, arguments.count);
    count = static_cast<std::int64_t>(prompts.size());
  }
  Progress progress;
  const auto start = std::chrono::steady_clock::now();
  Session::Options options;
  options.cache = !arguments.no_cache;
  options.capacity = model->config().length;
  const auto examples = draw_examples(model, count, arguments.labels, arguments.sampling, prompts,
                                      std::min(arguments.streams, count), options, &progress);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_png(arguments.out, picture_grid(model->config(), examples, arguments.columns));
  progress.show(fmt::format("{} images in {:.2f} s, {:.3g} images/s: {}", count, seconds,
                            static_cast<double>(count) / seconds, arguments.out),
                true);
  if (arguments.json)
    fmt::print("{}\n", Json{{"out", arguments.out},
                            {"images", count},
                            {"seconds", seconds},
                            {"images_per_second", static_cast<double>(count) / seconds}}
                           .dump(2));
}

/// Tokens of a model without pictures: bytes where there are 256 of them, otherwise numbers.
class Text {
 public:
  explicit Text(const ModelConfig& config)
      : bytes_(config.vocabulary == 256), vocabulary_(config.vocabulary) {}

  bool bytes() const { return bytes_; }

  std::vector<std::int32_t> tokens(const std::string& prompt) const {
    std::vector<std::int32_t> result;
    if (bytes_) {
      for (const char c : prompt) result.push_back(static_cast<unsigned char>(c));
      return result;
    }
    std::istringstream words(prompt);
    std::string word;
    while (words >> word) {
      std::size_t used = 0;
      int value = -1;
      try {
        value = std::stoi(word, &used);
      } catch (const std::exception&) {
      }
      if (used != word.size() || value < 0 || value >= vocabulary_)
        fail<UsageError>("prompt", "expected tokens in 0 … {}, got {}", vocabulary_ - 1, word);
      result.push_back(value);
    }
    return result;
  }

  std::string text(std::int32_t token) const {
    return bytes_ ? std::string(1, static_cast<char>(token)) : fmt::format("{} ", token);
  }

 private:
  bool bytes_;
  std::int64_t vocabulary_;
};

void write_text(const std::shared_ptr<const Model>& model, const Arguments& arguments) {
  if (!arguments.complete.empty() || arguments.columns != 0)
    fail<UsageError>("generate", "expected --complete and --columns for models of pictures, got one of text");
  const Text text(model->config());
  if (!arguments.out.empty()) require_file_path(arguments.out);
  std::string prompt = arguments.prompt_file.empty() ? arguments.prompt : read_file(arguments.prompt_file);
  if (prompt.empty() && !arguments.prompt_file.empty())
    fail("prompt", "expected something to continue in {}, got an empty file", arguments.prompt_file);
  const std::vector<std::int32_t> given = text.tokens(prompt);
  const std::int64_t count = arguments.count == 0 ? 1 : arguments.count;
  // Numbers that follow the prompt must not run into its last one.
  if (!text.bytes() && !prompt.empty() && prompt.back() != ' ') prompt += ' ';
  const std::int64_t known = static_cast<std::int64_t>(given.size());
  const bool bounded = model->config().positions == "learned";
  std::int64_t length = arguments.length;
  if (length == 0)
    length = bounded ? std::max<std::int64_t>(model->config().length - known, 1) : model->config().length;
  if (bounded && known + length > model->config().length)
    fail<UsageError>(
        "generate",
        "expected at most {} tokens, the model's learned positions, got {} of prompt and {} of --length",
        model->config().length, known, length);
  std::vector<std::int64_t> labels = arguments.labels;
  if (labels.empty()) labels = {model->config().classes > 0 ? 0 : -1};

  Session::Options options;
  options.cache = !arguments.no_cache;
  std::string all;
  Json results = Json::array();
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < count; ++i) {
    Session session(model, 1, options);
    SamplingOptions sampling = arguments.sampling;
    sampling.seed += static_cast<std::uint64_t>(i);
    session.begin(0, labels[static_cast<std::size_t>(i) % labels.size()], sampling);
    session.prefill(0, given);
    // With --json, and with --out, standard output is not for the text.
    const bool stream = arguments.out.empty() && !arguments.json;
    std::string written = prompt;
    if (stream) fmt::print("{}", prompt);
    for (std::int64_t n = 0; n < length; ++n) {
      std::int32_t token = 0;
      session.step(std::span(&token, 1));
      const std::string piece = text.text(token);
      written += piece;
      if (stream) {
        fmt::print("{}", piece);
        std::fflush(stdout);
      }
    }
    if (stream) fmt::print("\n");
    all += written + "\n";
    results.push_back(Json{{"text", written}});
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!arguments.out.empty()) write_file_atomically(arguments.out, all);
  const double rate = static_cast<double>(count * length) / seconds;
  Progress().show(fmt::format("{} tokens, {:.0f} tokens/s", count * length, rate), true);
  if (arguments.json)
    fmt::print("{}\n",
               Json{{"tokens", count * length}, {"tokens_per_second", rate}, {"results", results}}.dump(
                   2, ' ', false, Json::error_handler_t::replace));
}

void run(const Arguments& arguments) {
  if (arguments.threads > 0) set_thread_count(arguments.threads);
  arguments.sampling.check();
  const std::shared_ptr<const Model> model = Model::load(arguments.model);
  model->config().check_generates();
  for (const std::int64_t label : arguments.labels) model->config().first_input(label);
  if (model->config().image_height > 0)
    draw_pictures(model, arguments);
  else
    write_text(model, arguments);
}

}  // namespace

void add_generate(CLI::App& program) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("generate", "Draw pictures or write text with a trained model");
  command->footer(
      "Examples: linnet generate runs/digits --count 64 --out samples.png\n"
      "          linnet generate runs/text --prompt \"ROMEO:\" --length 500 --temperature 0.8");
  command->add_option("model", arguments->model, "folder of a model or of a run")->required();
  command->add_option("--count", arguments->count, "pictures (64) or texts (1)")->check(whole(1, most_count));
  command->add_option("--out", arguments->out, "PNG grid of pictures, or file of text (standard output)");
  command->add_option("--label", arguments->labels, "classes to draw in turn, 3,1,4; all by default")
      ->delimiter(',')
      ->check(whole(0));
  auto* prompt = command->add_option("--prompt", arguments->prompt,
                                     "text to continue (numbers where tokens are not bytes)");
  command->add_option("--prompt-file", arguments->prompt_file, "file to continue")->excludes(prompt);
  command->add_option("--complete", arguments->complete,
                      "complete the upper halves of a PNG's or IDX file's pictures");
  command->add_option("--length", arguments->length, "tokens of a text; model.length by default")
      ->check(whole(1, most_count));
  command
      ->add_option("--temperature", arguments->sampling.temperature,
                   "below 1 more probable, above 1 more varied; 0 greedy")
      ->check(number(0));
  command->add_option("--top-k", arguments->sampling.top_k, "only the k most probable tokens")
      ->check(whole(1));
  command
      ->add_option("--top-p", arguments->sampling.top_p,
                   "only the fewest tokens with this probability together")
      ->check(number(0, 1, true));
  command->add_option("--seed", arguments->sampling.seed, "of the first stream; the next ones count on");
  command->add_option("--streams", arguments->streams, "pictures drawn at a time")
      ->check(whole(1, most_count));
  command->add_option("--columns", arguments->columns, "of the grid")->check(whole(1, most_count));
  command->add_flag("--no-cache", arguments->no_cache, "compute every token from the whole sequence again");
  command->add_option("--threads", arguments->threads, "threads to use; all by default")
      ->check(whole(1, most_threads));
  command->add_flag("--json", arguments->json, "print the result as JSON");
  command->callback([=] { run(*arguments); });
}

}  // namespace linnet
