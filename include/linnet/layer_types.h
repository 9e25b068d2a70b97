#pragma once

namespace linnet {

/// gelu is exact, with the error function; gelu_tanh is its approximation (Hendrycks and Gimpel 2016).
enum class Activation { gelu, gelu_tanh, relu, none };

/// How a model tells positions: by a learned vector for each, by sines and cosines (Vaswani et al. 2017,
/// section 3.5), for any length, or not at all.
enum class Positions { learned, sinusoidal, none };

/// Layer normalisation before or after attention and feed-forward.
enum class NormOrder { pre, post };

/// The distribution of a real number: normal with a variance of 1, so that its logarithm is the squared error
/// up to a factor; normal with a learned scale; Student's t with learned scale and degrees of freedom.
enum class ValueDistribution { squared_error, gaussian, student_t };

/// Type of the weights of dense products.
enum class WeightType { f32, bf16, int8 };

}  // namespace linnet
