// Draws tokens one by one and prints each as it comes: text for a model of text, numbers for any other.
//   stream_tokens MODEL COUNT [PROMPT]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "linnet/error.h"
#include "linnet/generation.h"
#include "linnet/tokenizer.h"

int main(int count, char** arguments) try {
  if (count < 3) return std::fputs("usage: stream_tokens MODEL COUNT [PROMPT]\n", stderr), 2;
  const auto model = linnet::Model::load(arguments[1]);
  const linnet::ModelConfig& config = model->config();
  linnet::Session session(model, /*streams=*/1);
  const auto label = std::min<std::int64_t>(3, config.classes - 1);  // -1 where there are none
  session.begin(0, label, {.temperature = 0.8, .seed = 1});

  std::optional<linnet::TextStream> text;
  const bool bytes = config.vocabulary == 256 && config.image_width == 0;  // and no grey levels
  if (bytes || !model->assets().tokenizer.empty()) {
    const linnet::Tokenizer tokenizer(model->assets().tokenizer, config.vocabulary);
    const std::vector<std::int32_t> prompt = tokenizer.encode(count > 3 ? arguments[3] : "");
    session.prefill(0, prompt);
    text.emplace(tokenizer, prompt);
  } else if (count > 3) {
    return std::fputs("stream_tokens: expected a model of text for PROMPT, got another one\n", stderr), 2;
  }

  const auto print = [](const std::string& added) {
    std::fwrite(added.data(), 1, added.size(), stdout);
    std::fflush(stdout);
  };
  for (long i = 0; i < std::atol(arguments[2]); ++i) {
    std::int32_t token;
    session.step({&token, 1});  // the same time and memory for the first token and for the millionth
    print(text ? text->add(token) : std::to_string(token) + ' ');
  }
  if (text) print(text->finish());
  std::printf("\n%zu bytes of state after %lld tokens\n", session.state_bytes(0),
              static_cast<long long>(session.position(0)));
} catch (const linnet::Error& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
