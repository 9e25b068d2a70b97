#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/matrix.h"

/// The layers of a transformer in double precision, from the papers' formulas and nothing else: what the
/// layers and models of src/ are compared with. Forward passes alone; gradients come from their central
/// differences.
namespace linnet::reference {

/// x Wᵀ + b with W = name.weight [outputs, inputs], b = name.bias; without the bias where there is none.
Matrix dense(const Matrix& x, const Parameters& parameters, const std::string& name);

/// Ba et al. 2016, ε = 1e-5; gain name.weight, bias name.bias. Without a bias: division by the root mean
/// square (Zhang and Sennrich 2019).
Matrix norm(const Matrix& x, const Parameters& parameters, const std::string& name);

/// "none", "relu", "gelu" (x·Φ(x)) or "gelu-tanh" (Hendrycks and Gimpel 2016); of "swiglu" x·σ(x).
double activation(const std::string& kind, double x);

/// name.first, activation, name.second; with "swiglu" the activation is multiplied by name.gate.
Matrix feed_forward(const Matrix& x, const Parameters& parameters, const std::string& name,
                    const std::string& kind);

/// name.weight [tokens, width], and for "learned" positions name.positions [length, width]. Row i of an entry
/// stands at position first + i. "sinusoidal" is section 3.5 of Vaswani et al. 2017.
Matrix embedding(std::span<const std::int32_t> ids, std::int64_t length, std::int64_t width,
                 const Parameters& parameters, const std::string& name, const std::string& positions,
                 std::int64_t first = 0);

/// sin(p / 10000^(2j/d)) at column 2j, the cosine at 2j + 1.
double sinusoid(std::int64_t position, std::int64_t column, std::int64_t width);

/// Attention under a causal mask or, without `causal`, among all tokens of an entry.
struct AttentionSettings {
  std::string family = "linear";
  std::string feature_map = "elu";
  double alpha = 1;
  double epsilon = 1e-6;
  bool normalise = true;
  std::int64_t heads = 1;
  bool causal = true;
  std::int64_t window = std::int64_t{1} << 40;  ///< keys to either side of the query
  std::vector<std::int64_t> key_lengths = {};   ///< tokens of each entry, all where empty
  std::vector<double> decay = {};               ///< γ of each head, none where empty
  std::int64_t rank = 0;                        ///< of linformer
  std::int64_t projection_length = 0;           ///< tokens that its projections are for
  std::string projections_of = {};              ///< the layer that owns them, if it is not the layer itself
  bool rotary = false;                          ///< whether queries and keys are rotated
};

/// Queries and keys, the first `rotated` of the columns of rows [batch · length, …], by heads of head_dim
/// numbers: the pair (x_j, x_{j + head_dim/2}) of a row at position p of its entry turns by the angle p ·
/// 10000^(−2j/head_dim) (Su et al. 2021, equation 34, with the columns in another order).
Matrix rotated(Matrix qkv, std::int64_t length, std::int64_t rotated, std::int64_t head_dim);

/// φ of the feature map of that name.
double feature(const AttentionSettings& settings, double x);

/// Attention of rows [batch · length, 3 · width]: queries, keys and values side by side, heads side by side
/// inside each. Quadratic. The family lsh has [batch · length, 2 · width], queries and values, and here a
/// single bucket and chunk: a key is its query brought to length 1, seen by all others, and by itself where
/// there are none.
Matrix pairwise_attention(const Matrix& qkv, std::int64_t length, const AttentionSettings& settings);

/// Linformer's attention over all rows of each entry with name.key_projection [heads or 1, rank, projection
/// length] and name.value_projection, or the first for both.
Matrix linformer_attention(const Matrix& qkv, std::int64_t length, const Parameters& parameters,
                           const std::string& name, const AttentionSettings& settings);

/// name.qkv, pairwise attention (linformer: its own), name.output; γ = sigmoid(name.decay) where there is
/// such a parameter.
Matrix self_attention(const Matrix& x, std::int64_t length, const Parameters& parameters,
                      const std::string& name, const AttentionSettings& settings);

/// The rows of an encoder, [batch · length, width], and how many of each entry come before its padding
/// (empty: all).
struct Memory {
  Matrix rows;
  std::int64_t length = 0;
  std::vector<std::int64_t> lengths = {};
};

/// name.query of x, name.key_value of the memory, attention of the family linear or softmax to all of its
/// rows that are no padding, name.output. `length` is that of x.
Matrix cross_attention(const Matrix& x, std::int64_t length, const Memory& memory,
                       const Parameters& parameters, const std::string& name,
                       const AttentionSettings& settings);

struct BlockSettings {
  AttentionSettings attention;
  std::string activation = "gelu";
  bool norm_first = true;
};

/// Factors of the two branches' elements under dropout, 0 or 1 / (1 − rate); empty without dropout.
struct BlockMasks {
  std::vector<double> attention, feed_forward;
};

/// norm1, attention, norm2 and feed_forward below `name`: x + f(norm x), or norm(x + f(x)). With a memory
/// cross_norm and cross_attention stand between the two.
Matrix block(const Matrix& x, std::int64_t length, const Parameters& parameters, const std::string& name,
             const BlockSettings& settings, const BlockMasks& masks = {}, const Memory* memory = nullptr);

/// log-probabilities [vocabulary] of every token from a row of logits.
std::vector<double> categorical_log_probabilities(std::span<const double> logits);

/// The same from a row of K mixture logits, K means and K log-scales; Salimans et al. 2017, equation 2, with
/// values on [−1, 1], log-scales at least −7 and the tails given to the first and the last value.
std::vector<double> logistics_log_probabilities(std::span<const double> row, std::int64_t vocabulary);

}  // namespace linnet::reference
