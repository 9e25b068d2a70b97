// Draws the upper half of a picture once and completes it four times, each from a copy of the same state.
//   complete_image MODEL
#include <algorithm>
#include <cstdio>
#include <vector>

#include "linnet/error.h"
#include "linnet/generation.h"

int main(int count, char** arguments) try {
  if (count != 2) return std::fputs("usage: complete_image MODEL\n", stderr), 2;
  const auto model = linnet::Model::load(arguments[1]);
  const std::int64_t width = model->config().image_width, height = model->config().image_height;
  if (width == 0 || model->config().image_channels != 1)
    return std::fputs("expected a model of grey pictures\n", stderr), 1;
  const std::int64_t given = width * (height / 2), streams = 4;
  linnet::Session session(model, streams);

  std::vector<std::vector<std::int32_t>> pictures(streams, std::vector<std::int32_t>(width * height));
  const auto label = std::min<std::int64_t>(8, model->config().classes - 1);  // -1 where there are none
  session.begin(0, label, {.temperature = 0.7, .seed = 5});
  const std::int64_t first = 0;
  for (std::int64_t i = 0; i < given; ++i) session.step({&pictures[0][i], 1}, {&first, 1});

  for (std::int64_t s = 1; s < streams; ++s) session.fork(s, 0, /*seed=*/5 + s);
  std::vector<std::int32_t> tokens(streams);
  for (std::int64_t i = given; i < width * height; ++i) {
    session.step(tokens);
    for (std::int64_t s = 0; s < streams; ++s) pictures[s][i] = tokens[s];
  }
  for (std::int64_t y = 0; y < height; ++y, std::puts(""))
    for (std::int64_t s = 0; s < streams; ++s)
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int32_t grey = pictures[y * width + x < given ? 0 : s][y * width + x];
        std::fputs(grey * 4 < model->config().vocabulary   ? " "
                   : grey * 2 < model->config().vocabulary ? "+"
                                                           : "#",
                   stdout);
      }
} catch (const linnet::Error& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
