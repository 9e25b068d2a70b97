#pragma once

namespace linnet {

/// gelu is exact, with the error function; gelu_tanh is its approximation (Hendrycks and Gimpel 2016). swiglu
/// is a gated layer: silu(W₁ x) · (V x), with silu(a) = a σ(a) (Shazeer 2020, equation 6).
enum class Activation { gelu, gelu_tanh, relu, swiglu, none };

/// How a model tells positions: by a learned vector for each, by sines and cosines (Vaswani et al. 2017,
/// section 3.5), for any length, by rotating queries and keys (Su et al. 2021), for any length, or not at
/// all.
enum class Positions { learned, sinusoidal, rotary, none };

/// Layer normalisation (Ba et al. 2016), or division by the root mean square (Zhang and Sennrich 2019), which
/// has a gain and no bias.
enum class NormKind { layer, rms };

/// Normalisation before or after attention and feed-forward.
enum class NormOrder { pre, post };

/// The distribution of a real number: normal with a variance of 1, so that its logarithm is the squared error
/// up to a factor; normal with a learned scale; Student's t with learned scale and degrees of freedom.
enum class ValueDistribution { squared_error, gaussian, student_t };

/// Type of the weights of dense products.
enum class WeightType { f32, bf16, int8 };

}  // namespace linnet
