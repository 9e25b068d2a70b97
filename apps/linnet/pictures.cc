#include "pictures.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/fail.h"
#include "base/memory.h"
#include "comm/gather.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/images.h"
#include "io/file.h"
#include "io/image.h"
#include "linnet/dataset.h"
#include "ranks.h"

namespace linnet {
namespace {

constexpr double least_foretelling = 0.2;  // seconds

/// Pictures of a file: `planes` [count, channels, height, width].
struct Pictures {
  std::int64_t count = 1, height = 0, width = 0, channels = 1;
  std::vector<std::uint8_t> planes;
};

/// Reads a PNG or JPEG, one of CIFAR-10's .bin files, or else an IDX file.
Pictures read_pictures(const std::string& path) {
  if (is_image_file(path)) {
    const Image image = read_image(path);
    // Pixels [pixels, channels] as planes: the same transposition with the two exchanged.
    return {1, image.height, image.width, image.channels,
            interleave(image.pixels, image.height * image.width, image.channels)};
  }
  if (extension_of(path) == ".bin") {
    CifarBatch batch = read_cifar(path);
    const std::int64_t count = batch.size();
    return {count, cifar_size, cifar_size, cifar_channels, std::move(batch.planes)};
  }
  IdxArray array = read_idx(path);
  if (array.shape.size() != 3)
    fail("complete", "expected pictures [count, height, width] in {}, got {}", path, to_string(array.shape));
  return {array.shape[0], array.shape[1], array.shape[2], 1, std::move(array.values)};
}

/// Starts example `index` in a stream of a session: the one that was begun, or a new one. Returns its tokens.
std::vector<std::int32_t> begin(Session& session, std::int64_t stream, const ModelConfig& config,
                                const Drawing& drawing, std::int64_t index) {
  if (!drawing.begun.empty()) {
    const SavedStream& begun = drawing.begun[static_cast<std::size_t>(index)];
    session.restore(stream, begun.state);
    const std::int64_t position = session.position(stream);
    if (static_cast<std::int64_t>(begun.tokens.size()) != position || position + begun.left != config.length)
      fail("states", "expected {} tokens of a stream at position {}, got {} and {} to come", config.length,
           position, begun.tokens.size(), begun.left);
    for (const std::int32_t token : begun.tokens)
      if (token < 0 || token >= config.vocabulary)
        fail("states", "expected tokens in 0 … {}, got {}", config.vocabulary - 1, token);
    return begun.tokens;
  }
  std::int64_t label = -1;
  if (config.classes > 0)
    label = drawing.labels.empty() ? index % config.classes : drawing.labels[index % drawing.labels.size()];
  SamplingOptions sampling = drawing.sampling;
  sampling.seed += static_cast<std::uint64_t>(index);
  session.begin(stream, label, sampling);
  if (drawing.prompts.empty()) return {};
  session.prefill(stream, drawing.prompts[static_cast<std::size_t>(index)]);
  return drawing.prompts[static_cast<std::size_t>(index)];
}

/// Pixels [count, height, width, channels] as the model draws them: larger pictures are scaled down as data
/// are.
std::vector<std::uint8_t> pixels_for(const ModelConfig& config, const Pictures& found,
                                     const std::string& path) {
  const std::int64_t height = config.image_height, width = config.image_width, pixels = height * width;
  if (found.height == height && found.width == width) return interleave(found.planes, found.channels, pixels);
  if (height != width || found.height < height || found.width < width)
    fail("complete", "expected pictures of {}{} × {} as the model draws, got {} × {} in {}",
         height == width ? "at least " : "", height, width, found.height, found.width, path);
  Context context;
  return interleave(
      scale_down(context, found.planes, found.count * found.channels, found.height, found.width, height),
      found.channels, pixels);
}

/// Tokens as a grey or colour picture, black where there are none yet.
Image picture(const ModelConfig& config, std::span<const std::int32_t> tokens) {
  Image image{config.image_width, config.image_height, config.image_channels, {}};
  for (const std::int32_t token : tokens) image.pixels.push_back(pixel_of_token(token, config.vocabulary));
  image.pixels.resize(static_cast<std::size_t>(config.length));
  return image;
}

}  // namespace

std::vector<std::vector<std::int32_t>> upper_halves(const ModelConfig& config, const std::string& path,
                                                    std::int64_t count) {
  const Pictures found = read_pictures(path);
  if (found.channels != config.image_channels)
    fail("complete", "expected pictures of {} in {}, got {}",
         config.image_channels == 1 ? "1 channel (grey)" : "3 channels (red, green, blue)", path,
         found.channels == 1 ? "1 channel" : "3 channels");
  if (found.count == 0) fail("complete", "expected at least 1 picture in {}, got 0", path);
  if (count > found.count)
    fail("complete", "expected at least {} pictures in {}, got {}", count, path, found.count);
  const std::vector<std::uint8_t> pixels = pixels_for(config, found, path);
  const std::int64_t row = config.image_width * config.image_channels, given = config.image_height / 2 * row;
  std::vector<std::vector<std::int32_t>> halves(static_cast<std::size_t>(count == 0 ? found.count : count));
  for (std::size_t i = 0; i < halves.size(); ++i)
    for (std::int64_t p = 0; p < given; ++p)
      halves[i].push_back(token_of_pixel(pixels[i * config.length + p], config.vocabulary));
  return halves;
}

std::vector<std::vector<std::int32_t>> draw_examples(const std::shared_ptr<const Model>& model,
                                                     const Drawing& drawing, Progress* progress,
                                                     std::vector<SavedStream>* saved, Communicator* ranks) {
  const ModelConfig& config = model->config();
  const std::int64_t all = drawing.begun.empty() ? drawing.count : std::ssize(drawing.begun);
  const Share share = ranks == nullptr ? Share{0, all} : share_of(*ranks, all);
  const std::int64_t count = share.size();
  const bool collects = ranks != nullptr && ranks->rank() == 0;
  std::vector<std::vector<std::int32_t>> examples(static_cast<std::size_t>(count));
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t first = 0; first < count; first += drawing.streams) {
    const std::int64_t here = std::min(drawing.streams, count - first);
    Session session(model, here, drawing.session);
    std::vector<std::int64_t> ends;
    std::int64_t least = config.length, most = 0;
    for (std::int64_t i = 0; i < here; ++i) {
      examples[first + i] = begin(session, i, config, drawing, share.begin + first + i);
      const std::int64_t position = session.position(i);
      ends.push_back(position + std::min(drawing.steps, config.length - position));
      least = std::min(least, position);
      most = std::max(most, ends.back());
    }
    std::vector<std::int64_t> running;
    std::vector<std::int32_t> tokens;
    for (std::int64_t position = least; position < most; ++position) {
      running.clear();
      for (std::int64_t i = 0; i < here; ++i)
        if (session.position(i) == position && position < ends[i]) running.push_back(i);
      tokens.resize(running.size());
      session.step(tokens, running);
      for (std::size_t i = 0; i < running.size(); ++i) examples[first + running[i]].push_back(tokens[i]);
      if (progress == nullptr) continue;
      // Other ranks are as far with their shares.
      const double done = (static_cast<double>(first) + static_cast<double>(here * (position + 1 - least)) /
                                                            static_cast<double>(most - least)) *
                          static_cast<double>(all) / static_cast<double>(count);
      const double seconds = seconds_since(start);
      // The first steps take too little to foretell the others.
      if (seconds < least_foretelling) continue;
      progress->show(fmt::format("drawing {}/{}  {:.3g} images/s  {} left", static_cast<std::int64_t>(done),
                                 all, done / seconds,
                                 duration_text(seconds / done * (static_cast<double>(all) - done))));
    }
    if (saved == nullptr) continue;
    // As they are, and once more as one file or message.
    const double left = static_cast<double>(collects ? all - first : count - first);
    require_memory("the states", 2.0 * left * static_cast<double>(session.state_bytes(0)));
    for (std::int64_t i = 0; i < here; ++i)
      saved->push_back({config.length - session.position(i), examples[first + i], session.save(i)});
  }
  if (ranks == nullptr) return examples;
  if (saved != nullptr) *saved = gather_streams(*ranks, std::move(*saved));
  return gather_lists(*ranks, std::move(examples));
}

namespace {

/// How often a pixel is repeated to each side, so that small pictures are seen.
std::int64_t scale_of(const ModelConfig& config) {
  constexpr std::int64_t wanted_pixels = 56;
  return std::max<std::int64_t>(1, wanted_pixels / std::max(config.image_width, config.image_height));
}

/// As many columns as rows where `columns` is 0.
std::int64_t columns_of(std::int64_t count, std::int64_t columns) {
  return columns != 0 ? columns : static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
}

}  // namespace

void check_picture_grid(const ModelConfig& config, std::int64_t count, std::int64_t columns) {
  grid_layout(count, config.image_width, config.image_height, columns_of(count, columns), scale_of(config));
}

Image picture_grid(const ModelConfig& config, std::span<const std::vector<std::int32_t>> examples,
                   std::int64_t columns) {
  std::vector<Image> images;
  for (const auto& tokens : examples) images.push_back(picture(config, tokens));
  return grid(images, columns_of(std::ssize(images), columns), scale_of(config));
}

}  // namespace linnet
