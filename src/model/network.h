#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "layers/block.h"
#include "layers/columns.h"
#include "layers/embedding.h"
#include "layers/head.h"
#include "layers/later_field.h"
#include "layers/value_head.h"
#include "linnet/model.h"
#include "model/encoder.h"

namespace linnet {

/// The attention of the model's layers of that family; `feature_map` is the one that the configuration names,
/// or nullptr for a built-in one.
AttentionOptions attention_of(const ModelConfig& config, Family family,
                              std::shared_ptr<const FeatureMap> feature_map = nullptr);

/// What the blocks of that family are built from.
Block::Parts block_parts_of(const ModelConfig& config, Family family,
                            const std::shared_ptr<const FeatureMap>& feature_map = nullptr);

/// The cross attention of the layer of that index in a decoder that has an encoder.
CrossBranch::Parts cross_parts_of(const ModelConfig& config, int layer,
                                  const std::shared_ptr<const FeatureMap>& feature_map = nullptr);

/// Numbers that the output heads give for a step.
std::int64_t head_outputs(const ModelConfig& config);

/// The layers of a transformer, in the order in which they are applied, and the table of their
/// parameters.
class Network {
 public:
  /// `feature_map` as in `attention_of`; `training_type` as in ParameterTable.
  explicit Network(const ModelConfig& config, const std::shared_ptr<const FeatureMap>& feature_map = nullptr,
                   WeightType training_type = WeightType::f32);

  /// Takes the parameters, whose memory must stay where they are not released; `training` also packs what a
  /// backward needs.
  void pack(Context& context, const ParameterValues& parameters, bool training);

  /// Writes the weights of all dense products, as they were packed, to their places in the buffer.
  void unpack(std::span<float> parameters) const;

  /// Draws the random features of all layers anew, for the `draw`-th time; to be packed afterwards.
  void redraw(std::span<float> parameters, std::uint64_t draw) const;

  const ModelConfig& config() const { return config_; }
  const ParameterTable& table() const { return table_; }

  /// Of an encoder–decoder model; null in others.
  const Encoder* encoder() const { return encoder_ ? &*encoder_ : nullptr; }
  const Embedding& embedding() const { return *embedding_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  /// Where the parameters of a block begin in the table. Those of the encoder and of the embedding come
  /// before all blocks, those of what follows the blocks after them.
  std::int64_t first_of_block(std::size_t block) const { return first_of_block_[block]; }
  /// The same for what comes after the last block.
  std::int64_t first_after_blocks() const { return first_of_block_.back(); }
  /// The same for the embedding; the encoder's are those before it.
  std::int64_t first_of_embedding() const { return first_of_embedding_; }
  /// After the last block where norms come first; otherwise the last block has normalised already.
  const std::optional<Norm>& final_norm() const { return final_norm_; }

  /// Of tokens, where the model predicts tokens (`has_head`): of their first field.
  const OutputHead& head() const { return *head_; }
  bool has_head() const { return head_ != nullptr; }
  /// Of the other fields, in order, each given those before.
  const std::vector<LaterField>& later_fields() const { return later_fields_; }
  /// Of the other fields of a masked model, each by itself.
  const std::vector<std::unique_ptr<OutputHead>>& single_fields() const { return single_fields_; }
  /// Of any field.
  const OutputHead& field_head(std::size_t field) const {
    return field == 0               ? *head_
           : single_fields_.empty() ? later_fields_[field - 1].head()
                                    : *single_fields_[field - 1];
  }
  /// Of real numbers, with their scale, where the model predicts them.
  const std::optional<ValueHead>& value_head() const { return value_head_; }
  /// The scale of the real numbers, where there are any.
  const std::optional<Columns>& columns() const { return columns_; }
  /// Of labels, in a classifier.
  const OutputHead* classifier() const { return classifier_.get(); }

 private:
  ModelConfig config_;
  ParameterTable table_;
  std::optional<Encoder> encoder_;
  std::optional<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::int64_t first_of_embedding_ = 0;
  std::vector<std::int64_t> first_of_block_;  ///< and after the last one
  std::optional<Norm> final_norm_;
  std::unique_ptr<OutputHead> head_;
  std::vector<LaterField> later_fields_;
  std::vector<std::unique_ptr<OutputHead>> single_fields_;
  std::optional<Columns> columns_;
  std::optional<ValueHead> value_head_;
  std::unique_ptr<OutputHead> classifier_;
};

}  // namespace linnet
