#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "layers/dense.h"
#include "linnet/context.h"

namespace linnet {

/// The index of the share that `u` of the sum of `share_of(0)` … `share_of(count − 1)` falls into.
template <class Share>
std::int64_t index_at(float u, std::int64_t count, const Share& share_of) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += share_of(i);
  double rest = u * sum;
  std::int64_t last = 0;  // the shares may end before u by rounding
  for (std::int64_t i = 0; i < count; ++i) {
    const double share = share_of(i);
    rest -= share;
    if (rest < 0) return i;
    if (share > 0) last = i;
  }
  return last;
}

/// Index drawn with the probabilities softmax(logits [count]): the part of [0, 1) that u falls into.
/// `workspace`, at least [count], is written over, and may be the memory of the logits.
std::int64_t draw_from_logits(Context& context, const float* logits, std::int64_t count, float u,
                              std::span<float> workspace);

/// The distribution of the next token, from a hidden row: a linear map to its parameters, and its loss.
class OutputHead {
 public:
  /// Softmax over `vocabulary` tokens. `tied` is the embedding's table, whose first rows are the weights, or
  /// nullptr.
  static std::unique_ptr<OutputHead> categorical(ParameterTable& table, const std::string& name,
                                                 std::int64_t width, std::int64_t vocabulary,
                                                 const ParameterPlace* tied);

  /// A mixture of discretised logistics over the ordered values 0 … vocabulary − 1 (Salimans et al. 2017).
  static std::unique_ptr<OutputHead> logistic_mixture(ParameterTable& table, const std::string& name,
                                                      std::int64_t width, std::int64_t vocabulary,
                                                      std::int64_t components);

  OutputHead(Dense projection, std::int64_t vocabulary)
      : projection_(std::move(projection)), vocabulary_(vocabulary) {}
  virtual ~OutputHead() = default;

  void pack(Context& context, const ParameterValues& parameters, bool training) {
    projection_.pack(context, parameters, training);
  }

  /// As in Dense.
  void unpack(std::span<float> parameters) const { projection_.unpack(parameters); }

  /// Numbers that describe one token's distribution: `vocabulary` logits, or 3 a component.
  std::int64_t outputs() const { return projection_.outputs(); }
  std::int64_t vocabulary() const { return vocabulary_; }

  /// parameters [rows, outputs] from hidden [rows, width].
  void forward(Context& context, View<float> parameters, View<const float> hidden) const {
    projection_.forward(context, parameters, hidden);
  }

  /// dhidden is assigned from dparameters; gradients of the weights are added.
  void backward(Context& context, View<float> dhidden, View<const float> dparameters,
                View<const float> hidden, std::span<float> gradients) const {
    projection_.backward(context, dhidden, dparameters, hidden, gradients);
  }

  /// nll[row] = −log p(targets[row]) in nats, 0 where the target is negative. dparameters, where not empty,
  /// is assigned the gradient of weight · Σ nll and may be `parameters`' own memory.
  virtual void loss(Context& context, std::span<float> nll, View<float> dparameters,
                    View<const float> parameters, std::span<const std::int32_t> targets,
                    float weight) const = 0;

  /// logits [vocabulary], up to a constant the log-probabilities of every token under parameters [outputs].
  virtual void logits(Context& context, View<float> logits, View<const float> parameters) const = 0;

  /// The same for hidden rows: logits [rows, vocabulary] from hidden [rows, width], on all threads of the
  /// context. The working memory does not grow with the rows.
  void logits_of(Context& context, View<float> logits, View<const float> hidden) const;

  /// nll[row] of `loss` from hidden [rows, width], in the same manner.
  void losses_of(Context& context, std::span<float> nll, View<const float> hidden,
                 std::span<const std::int32_t> targets) const;

  /// One draw from the distribution itself, u₁ and u₂ uniform in (0, 1). `workspace`
  /// [max(vocabulary, outputs)] is written over.
  virtual std::int32_t sample(Context& context, View<const float> parameters, float u1, float u2,
                              std::span<float> workspace) const = 0;

 private:
  /// body(first row, parameters [rows, outputs]) for one piece of the hidden rows after another.
  template <class Body>
  void in_pieces(Context& context, View<const float> hidden, const Body& body) const;

  Dense projection_;
  std::int64_t vocabulary_;
};

}  // namespace linnet
