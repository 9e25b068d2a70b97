#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "layers/block.h"
#include "layers/embedding.h"
#include "linnet/model.h"

namespace linnet {

/// The encoder of an encoder–decoder model (Vaswani et al. 2017, section 3.1): an embedding with positions
/// and bidirectional blocks, whose last rows the decoder's layers attend to.
class Encoder {
 public:
  /// `feature_map` as in `attention_of`.
  Encoder(ParameterTable& table, const ModelConfig& config,
          const std::shared_ptr<const FeatureMap>& feature_map);

  /// The tokens of a pass, [batch · length].
  struct Source {
    std::span<const std::int32_t> ids = {};
    std::int64_t batch = 0, length = 0;
    std::span<const std::int64_t> key_lengths = {};  ///< [batch] tokens before the padding, or empty
  };

  /// What `backward` needs of a forward pass.
  struct Saved {
    std::vector<Tensor> streams;  ///< input of every block, then of the final norm; [batch · length, width]
    std::vector<Block::Saved> blocks;
    Tensor normed, stats;
    void reserve(std::int64_t batch, std::int64_t length, const Encoder& encoder);
    /// Of the memory that `reserve` takes for each token of a source.
    static double floats_per_token(const ModelConfig& config, const ParameterTable& table);
  };

  void pack(Context& context, const ParameterValues& parameters, bool training);

  /// As in Dense.
  void unpack(std::span<float> parameters) const;

  /// As in SelfAttention.
  void redraw(std::span<float> parameters, std::uint64_t draw) const;

  /// The rows [batch, length, width], which lie in `saved`.
  View<const float> forward(Context& context, const Source& source, Saved& saved,
                            const Dropout& dropout) const;

  /// `d` [batch, length, width] holds the gradient of the rows and is overwritten; gradients of parameters
  /// are added. The encoder's parameters are the first of all.
  void backward(Context& context, View<float> d, const Source& source, const Saved& saved,
                const Dropout& dropout, std::span<float> gradients,
                const GradientsComplete& complete = {}) const;

  /// Writes x, the rows [batch, length, width]; nothing is kept for a backward. `saved` is only memory.
  void apply(Context& context, View<float> x, const Source& source, SelfAttention::Saved& saved) const;

  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  std::int64_t width_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  std::vector<std::int64_t> first_of_block_;  ///< in the table
  std::optional<Norm> final_norm_;            ///< as in Network
};

}  // namespace linnet
