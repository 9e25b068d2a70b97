#include "pictures.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "linnet/dataset.h"

namespace linnet {

Image picture(const ModelConfig& config, std::span<const std::int32_t> tokens) {
  if (config.image_height == 0)
    fail<UsageError>("picture", "expected a model of pictures, got one whose tokens are not pixels");
  Image image{config.image_width, config.image_height, 1, {}};
  for (const std::int32_t token : tokens) image.pixels.push_back(pixel_of_token(token, config.vocabulary));
  return image;
}

std::vector<std::vector<std::int32_t>> draw_examples(const std::shared_ptr<const Model>& model,
                                                     std::int64_t count, std::span<const std::int64_t> labels,
                                                     SamplingOptions sampling,
                                                     std::span<const std::vector<std::int32_t>> prompts,
                                                     std::int64_t streams, const Session::Options& options,
                                                     Progress* progress) {
  const ModelConfig& config = model->config();
  std::vector<std::vector<std::int32_t>> examples(static_cast<std::size_t>(count));
  const std::uint64_t first_seed = sampling.seed;
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t first = 0; first < count; first += streams) {
    const std::int64_t here = std::min(streams, count - first);
    Session session(model, here, options);
    std::int64_t least = config.length;
    for (std::int64_t i = 0; i < here; ++i) {
      const std::int64_t picture = first + i;
      std::int64_t label = -1;
      if (config.classes > 0)
        label = labels.empty() ? picture % config.classes : labels[picture % labels.size()];
      sampling.seed = first_seed + static_cast<std::uint64_t>(picture);
      session.begin(i, label, sampling);
      if (!prompts.empty()) {
        examples[picture] = prompts[picture];
        session.prefill(i, prompts[picture]);
      }
      least = std::min(least, session.position(i));
    }
    std::vector<std::int64_t> running;
    std::vector<std::int32_t> tokens;
    for (std::int64_t position = least; position < config.length; ++position) {
      running.clear();
      for (std::int64_t i = 0; i < here; ++i)
        if (session.position(i) == position) running.push_back(i);
      tokens.resize(running.size());
      session.step(tokens, running);
      for (std::size_t i = 0; i < running.size(); ++i) examples[first + running[i]].push_back(tokens[i]);
      if (progress != nullptr) {
        const double done = static_cast<double>(first) + static_cast<double>(here * (position + 1 - least)) /
                                                             static_cast<double>(config.length - least);
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        progress->show(fmt::format("drawing {}/{}  {:.3g} images/s  {} left", static_cast<std::int64_t>(done),
                                   count, done / seconds,
                                   duration_text(seconds / done * (static_cast<double>(count) - done))));
      }
    }
  }
  return examples;
}

Image picture_grid(const ModelConfig& config, std::span<const std::vector<std::int32_t>> examples,
                   std::int64_t columns) {
  constexpr std::int64_t wanted_pixels = 56;
  std::vector<Image> images;
  for (const auto& tokens : examples) images.push_back(picture(config, tokens));
  if (columns == 0)
    columns = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(images.size()))));
  const std::int64_t scale =
      std::max<std::int64_t>(1, wanted_pixels / std::max(config.image_width, config.image_height));
  return grid(images, columns, scale);
}

}  // namespace linnet
