#include "model/encoder.h"

#include <fmt/format.h>

#include "layers/shapes.h"
#include "model/config.h"
#include "model/network.h"

namespace linnet {
namespace {

/// The first [batch, length, width] of a tensor's memory.
View<float> cube(Tensor& tensor, const Encoder::Source& source, std::int64_t width) {
  return {tensor.span<float>().data(), {source.batch, source.length, width}};
}
View<const float> cube(const Tensor& tensor, const Encoder::Source& source, std::int64_t width) {
  return {tensor.span<float>().data(), {source.batch, source.length, width}};
}

}  // namespace

Encoder::Encoder(ParameterTable& table, const ModelConfig& config,
                 const std::shared_ptr<const FeatureMap>& feature_map)
    : width_(config.width),
      embedding_(
          table, "encoder.embedding",
          Embedding::Shape{config.source_tokens(), config.width, config.source_length, config.positions}) {
  const ModelConfig own = encoder_config(config);
  for (int i = 0; i < config.encoder_layers; ++i) {
    Block::Parts parts = block_parts_of(own, own.attention.family, feature_map);
    // The decoder's layers come first where layers are told apart.
    parts.layer = parts.attention.attention.layer = static_cast<int>(config.layers) + i;
    first_of_block_.push_back(table.size());
    blocks_.emplace_back(table, fmt::format("encoder.layers.{}", i), parts);
  }
  if (config.norm == NormOrder::pre)
    final_norm_.emplace(table, "encoder.final_norm", config.width, config.norm_kind);
}

void Encoder::Saved::reserve(std::int64_t batch, std::int64_t length, const Encoder& encoder) {
  const std::int64_t rows = batch * length;
  streams.clear();
  for (std::size_t i = 0; i <= encoder.blocks().size(); ++i)
    streams.push_back(Tensor::of<float>({rows, encoder.width_}));
  blocks.resize(encoder.blocks().size());
  for (std::size_t i = 0; i < blocks.size(); ++i)
    blocks[i].reserve(batch, length, encoder.blocks()[i].parts());
  if (!encoder.final_norm_) return;
  normed = Tensor::of<float>({rows, encoder.width_});
  stats = Tensor::of<float>({rows, 2});
}

double Encoder::Saved::floats_per_token(const ModelConfig& config, const ParameterTable& table) {
  const ModelConfig own = encoder_config(config);
  const double layers = static_cast<double>(own.layers), width = static_cast<double>(own.width);
  return (layers + 1) * width + (own.norm == NormOrder::pre ? width + 2 : 0) +
         layers * Block::Saved::floats_per_token(block_parts_of(own, own.attention.family), table);
}

void Encoder::pack(Context& context, const ParameterValues& parameters, bool training) {
  embedding_.pack(context, parameters, training);
  for (Block& block : blocks_) block.pack(context, parameters, training);
  if (final_norm_) final_norm_->pack(parameters);
}

void Encoder::unpack(std::span<float> parameters) const {
  embedding_.unpack(parameters);
  for (const Block& block : blocks_) block.unpack(parameters);
}

void Encoder::redraw(std::span<float> parameters, std::uint64_t draw) const {
  for (const Block& block : blocks_) block.attention().redraw(parameters, draw);
}

View<const float> Encoder::forward(Context& context, const Source& source, Saved& saved,
                                   const Dropout& dropout) const {
  const auto stream = [&](std::size_t i) { return cube(saved.streams[i], source, width_); };
  embedding_.forward(context, stream(0), source.ids, 0);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].forward(context, stream(i + 1), stream(i), saved.blocks[i], dropout, source.key_lengths);
  const View<float> last = stream(blocks_.size());
  if (!final_norm_) return last;
  const View<float> normed = cube(saved.normed, source, width_);
  final_norm_->forward(context, rows(normed),
                       saved.stats.view<float>().slice(0, 0, source.batch * source.length), rows(last));
  return normed;
}

void Encoder::backward(Context& context, View<float> d, const Source& source, const Saved& saved,
                       const Dropout& dropout, std::span<float> gradients,
                       const GradientsComplete& complete) const {
  const auto stream = [&](std::size_t i) { return cube(saved.streams[i], source, width_); };
  if (final_norm_)
    final_norm_->backward(context, rows(d), rows(d), rows(stream(blocks_.size())),
                          saved.stats.view<float>().slice(0, 0, source.batch * source.length), gradients,
                          false);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i].backward(context, d, stream(i), saved.blocks[i], dropout, gradients);
    if (complete) complete(first_of_block_[i]);
  }
  embedding_.backward(context, d, source.ids, gradients);
  if (complete) complete(0);
}

void Encoder::apply(Context& context, View<float> x, const Source& source,
                    SelfAttention::Saved& saved) const {
  embedding_.forward(context, x, source.ids, 0);
  for (const Block& block : blocks_) block.apply(context, x, saved, {}, source.key_lengths);
  if (final_norm_) final_norm_->forward(context, rows(x), {}, rows(x));
}

}  // namespace linnet
