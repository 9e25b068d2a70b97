#pragma once

#include <cstdint>
#include <span>

#include "linnet/context.h"
#include "linnet/layer_types.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// Cross entropy of logits [rows, categories]: nll[row] = −log softmax(logits[row])[targets[row]] in nats;
/// rows whose target is negative count 0. Where `dlogits` is not empty it is assigned the gradient of weight
/// · Σ nll; it may be `logits`' memory. Where `correct` is not empty, correct[row] is 1 when the target has
/// the largest logit.
void categorical_loss(Context& context, std::span<float> nll, View<float> dlogits, View<const float> logits,
                      std::span<const std::int32_t> targets, float weight,
                      std::span<std::uint8_t> correct = {});

/// y [rows, categories] = softmax(logits), row by row. y may be logits' memory.
void softmax_rows(Context& context, View<float> y, View<const float> logits);

/// Mixture of discretised logistics (Salimans et al. 2017, PixelCNN++, equation 2) over the values 0 … levels
/// − 1, placed evenly on [−1, 1]. parameters [rows, 3 K]: K logits of the weights, K means, K log-scales
/// (clamped to at least `least_mixture_log_scale`). The first and the last value own the tails, so that the
/// probabilities of all values add up to 1. nll, gradients and negative targets as in `categorical_loss`.
void logistic_mixture_loss(Context& context, std::span<float> nll, View<float> dparameters,
                           View<const float> parameters, std::span<const std::int32_t> targets,
                           std::int64_t levels, float weight);

inline constexpr float least_mixture_log_scale = -7;

/// Parameters that describe the distribution of one real number: its mean; for the Gaussian and for Student's
/// t also the logarithm of its scale; for Student's t also the logarithm of ν − 1.
std::int64_t value_parameters(ValueDistribution distribution);

/// What the logarithms of the scale and of ν − 1 are clamped to.
inline constexpr float least_log_scale = -7, most_log_scale = 7;
inline constexpr float least_log_freedom = -5, most_log_freedom = 7;

/// Densities of real numbers. parameters [rows, P · T] hold the T means, then the T logarithms of the scales
/// (clamped as above), then the T logarithms of ν − 1 (clamped, too); targets [rows, T], of which NaN
/// does not count. nll[row] = −Σ log p over the targets of the row, in nats; squared error is the normal
/// distribution of variance 1. Where `dparameters` is not empty it is assigned the gradient of weight · Σ
/// nll; it may be `parameters`' memory.
void value_loss(Context& context, std::span<float> nll, View<float> dparameters, View<const float> parameters,
                View<const float> targets, ValueDistribution distribution, float weight);

/// log Γ(x) for x > 0, which unlike std::lgamma writes no global variable.
double log_gamma(double x);

}  // namespace linnet::kernels
