// The reference of linear attention with states, against central differences.
#include "attention/attention_tools.h"
#include "attention/linear/linear_attention.h"
#include "attention/mask_cases.h"

namespace linnet {
namespace {

using test::MaskCase;
using test::relative_error;
using test::to_double;

constexpr std::int64_t batch = 2, heads = 2, head_dim = 3, value_dim = 2;

/// A call with an initial state, and the gradients of its output and its final state.
struct Call {
  Call(const AttentionOptions& options, Mask mask, std::int64_t length, bool decays, std::uint64_t seed)
      : options(options),
        mask(std::move(mask)),
        features(options.linear.feature_map->features(head_dim)),
        numbers(heads * features * (value_dim + 1)),
        q(input({batch, length, heads, head_dim}, seed)),
        k(input({batch, length, heads, head_dim}, seed + 1)),
        v(input({batch, length, heads, value_dim}, seed + 2)),
        initial(input({batch, numbers}, seed + 3)),
        initial_scale(input({batch, heads}, seed + 4)),
        grad(input({batch, length, heads, value_dim}, seed + 5)),
        grad_final(input({batch, numbers}, seed + 6)) {
    // Denominators stay away from 0.
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = heads * features * value_dim; i < numbers; ++i)
        initial.view<double>()(b, i) = 1 + std::abs(initial.view<double>()(b, i));
    decay = to_double(Tensor());
    if (!decays) return;
    decay = Tensor::of<double>({heads});
    for (std::int64_t h = 0; h < heads; ++h) decay.view<double>()(h) = 0.7 + 0.2 * double(h);
  }

  static Tensor input(Shape shape, std::uint64_t seed) {
    return to_double(test::random_tensor(std::move(shape), seed));
  }

  ReferenceInputs inputs() const {
    return {q.view<double>(), k.view<double>(), v.view<double>(), mask, decay.view<double>()};
  }
  LinearReferenceStates states() const { return {initial.view<double>(), initial_scale.view<double>(), 5}; }

  /// Σ out · grad + Σ e^(M − M₀) S · grad_final over the final state, whose log-scale was M₀ at first.
  double loss(bool first) {
    Tensor out = Tensor::of<double>(grad.shape()), final = Tensor::of<double>(grad_final.shape()),
           scale = Tensor::of<double>({batch, heads});
    linear_reference_forward(options, out.view<double>(), inputs(), states(), final.view<double>(),
                             scale.view<double>());
    if (first) first_scale = scale.clone();
    double sum = 0;
    for (std::size_t i = 0; i < out.span<double>().size(); ++i)
      sum += out.span<double>()[i] * grad.span<double>()[i];
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < numbers; ++i) {
        const std::int64_t h = i < heads * features * value_dim
                                   ? i / (features * value_dim)
                                   : (i - heads * features * value_dim) / features;
        const double now = scale.view<double>()(b, h), then = first_scale.view<double>()(b, h);
        const double factor = std::isfinite(then) ? std::exp(now - then) : 1;
        sum += factor * final.view<double>()(b, i) * grad_final.view<double>()(b, i);
      }
    return sum;
  }

  std::vector<double> differences(Tensor& input) {
    loss(true);
    std::vector<double> result;
    for (double& number : input.span<double>()) {
      const double at = number, step = 1e-6;
      number = at + step;
      const double above = loss(false);
      number = at - step;
      result.push_back((above - loss(false)) / (2 * step));
      number = at;
    }
    return result;
  }

  void expect_differences() {
    Tensor dq = q.clone(), dk = k.clone(), dv = v.clone(), d_decay = decay.clone(),
           d_initial = initial.clone();
    linear_reference_backward(
        options, {dq.view<double>(), dk.view<double>(), dv.view<double>(), d_decay.view<double>()},
        std::as_const(grad).view<double>(), inputs(), states(), d_initial.view<double>(),
        std::as_const(grad_final).view<double>());
    for (const auto& [what, input, gradient] : {std::tuple{"query", &q, &dq},
                                                {"key", &k, &dk},
                                                {"value", &v, &dv},
                                                {"decay", &decay, &d_decay},
                                                {"initial", &initial, &d_initial}})
      EXPECT_LT(relative_error(gradient->span<double>(), differences(*input), 1e-3), 1e-5) << what;
  }

  AttentionOptions options;
  Mask mask;
  std::int64_t features, numbers;
  Tensor q, k, v, initial, initial_scale, grad, grad_final, decay, first_scale;
};

TEST(LinearStateReference, GradientsMatchDifferences) {
  FeatureMapOptions random;
  random.head_dim = head_dim;
  random.random.features = 4;
  for (const char* map : {"elu", "relu", "random-exp"}) {
    for (const Normalise normalise : {Normalise::sum, Normalise::none}) {
      AttentionOptions options;
      options.linear.feature_map = find_feature_map(map, random);
      options.linear.normalise = normalise;
      const bool scaled = std::string(map) == "random-exp";
      for (const std::int64_t n : {0, 1, 7}) {
        std::vector<MaskCase> masks = {test::causal_case(), test::prefix_case({n / 2})};
        if (n > 2) {
          masks.push_back(test::with_segments(test::causal_case(), {{0, 3, n}}));
          masks.push_back(test::with_segments(test::prefix_case({n}), {{0, 2, n}}));
        }
        for (const MaskCase& plain : masks) {
          for (const MaskCase& mask : {plain, test::with_key_lengths(plain, {n / 2, n})}) {
            for (const bool decays : {false, true}) {
              if (decays && (scaled || mask.mask.kind() != Mask::Kind::causal)) continue;
              SCOPED_TRACE(std::string(map) + ", " + mask.what + ", length " + std::to_string(n));
              Call(options, mask.mask, n, decays, 20 + n).expect_differences();
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace linnet
