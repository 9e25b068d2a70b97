// What is drawn follows the distribution that the options make of a known one.
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <tuple>

#include "support/sessions.h"

namespace linnet {
namespace {

/// Probabilities 0.30, 0.20, 0.17, 0.13, 0.10, 0.07, 0.03 in another order, shifted as logits may be.
const std::vector<double> known = {0.13, 0.03, 0.30, 0.07, 0.20, 0.17, 0.10};

std::shared_ptr<const Model> known_model() {
  std::vector<float> logits;
  for (const double p : known) logits.push_back(static_cast<float>(std::log(p) + 2.5));
  return model_of_distribution(logits);
}

constexpr std::int64_t streams = 100, steps = 300;

/// Draws of many streams and positions: [stream][position].
std::vector<std::vector<std::int32_t>> many_draws(const std::shared_ptr<const Model>& model,
                                                  SamplingOptions options) {
  Session session(model, streams);
  for (std::int64_t i = 0; i < streams; ++i) {
    options.seed = static_cast<std::uint64_t>(i);
    session.begin(i, -1, options);
  }
  std::vector<std::vector<std::int32_t>> result(streams);
  std::vector<std::int32_t> tokens(streams);
  for (std::int64_t t = 0; t < steps; ++t) {
    session.step(tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) result[i].push_back(tokens[i]);
  }
  return result;
}

/// Pearson's statistic of counts, which must not exceed its mean by six deviations; what has no probability
/// is never seen.
void expect_follows(const std::vector<double>& counts, const std::vector<double>& probabilities) {
  double total = 0, statistic = 0, freedom = -1;
  for (const double count : counts) total += count;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * probabilities[i];
    if (probabilities[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "outcome " << i;
      continue;
    }
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++freedom;
  }
  EXPECT_LT(statistic, freedom + 6 * std::sqrt(2 * freedom) + 1e-9) << testing::PrintToString(counts);
}

std::vector<double> normalised(std::vector<double> p) {
  double sum = 0;
  for (const double value : p) sum += value;
  for (double& value : p) value /= sum;
  return p;
}

/// `known` without what is less probable than `least`.
std::vector<double> at_least(double least) {
  std::vector<double> p = known;
  for (double& value : p)
    if (value < least) value = 0;
  return normalised(p);
}

void expect_draws_follow(const SamplingOptions& options, const std::vector<double>& probabilities) {
  std::vector<double> counts(known.size());
  for (const auto& stream : many_draws(known_model(), options))
    for (const std::int32_t token : stream) ++counts[static_cast<std::size_t>(token)];
  expect_follows(counts, probabilities);
}

TEST(Sampling, FollowsTheModelsDistribution) { expect_draws_follow({}, known); }

TEST(Sampling, DrawsOfNeighbouringPositionsAndSeedsAreIndependent) {
  const auto draws = many_draws(known_model(), {});
  const std::size_t n = known.size();
  std::vector<double> positions(n * n), seeds(n * n), expected;
  for (const double a : known)
    for (const double b : known) expected.push_back(a * b);
  const auto pair = [n](std::int32_t a, std::int32_t b) {
    return static_cast<std::size_t>(a) * n + static_cast<std::size_t>(b);
  };
  for (std::size_t i = 0; i < draws.size(); ++i)
    for (std::size_t t = 0; t + 1 < draws[i].size(); t += 2) ++positions[pair(draws[i][t], draws[i][t + 1])];
  for (std::size_t i = 0; i + 1 < draws.size(); i += 2)
    for (std::size_t t = 0; t < draws[i].size(); ++t) ++seeds[pair(draws[i][t], draws[i + 1][t])];
  expect_follows(positions, expected);
  expect_follows(seeds, expected);
}

TEST(Sampling, TemperatureRaisesProbabilitiesToAPower) {
  for (const double temperature : {0.3, 0.7, 1.0, 2.5, 100.0}) {
    SCOPED_TRACE(temperature);
    SamplingOptions options;
    options.temperature = temperature;
    std::vector<double> p = known;
    for (double& value : p) value = std::pow(value, 1 / temperature);
    expect_draws_follow(options, normalised(p));
  }
}

TEST(Sampling, TemperatureZeroTakesTheMostProbable) {
  for (const auto& stream : many_draws(known_model(), greedy()))
    for (const std::int32_t token : stream) ASSERT_EQ(token, 2);
  SamplingOptions tiny;
  tiny.temperature = 1e-6;  // nearly so: nothing may overflow on the way
  for (const auto& stream : many_draws(known_model(), tiny))
    for (const std::int32_t token : stream) ASSERT_EQ(token, 2);
}

TEST(Sampling, TopKKeepsTheKMostProbable) {
  SamplingOptions options;
  const double least_of_k[] = {0.30, 0.20, 0.17, 0.13, 0.10, 0.07, 0.03};
  for (std::int64_t k = 1; k <= 7; ++k) {
    SCOPED_TRACE(testing::Message() << "k = " << k);
    options.top_k = k;
    expect_draws_follow(options, at_least(least_of_k[k - 1]));
  }
  options.top_k = 1000;
  expect_draws_follow(options, known);
}

TEST(Sampling, TopPKeepsTheFewestThatAddUpToP) {
  // The sums are 0.30, 0.50, 0.67, 0.80, 0.90, 0.97, 1.
  const std::pair<double, double> cases[] = {{1e-9, 0.30}, {0.29, 0.30}, {0.31, 0.20}, {0.49, 0.20},
                                             {0.51, 0.17}, {0.7, 0.13},  {0.85, 0.10}, {0.95, 0.07},
                                             {0.98, 0.03}, {1.0, 0.03}};
  for (const auto& [top_p, least] : cases) {
    SCOPED_TRACE(testing::Message() << "p = " << top_p);
    SamplingOptions options;
    options.top_p = top_p;
    expect_draws_follow(options, at_least(least));
  }
}

TEST(Sampling, LargeVocabulariesAreCutAsTheirWholeOrderSays) {
  // Of 3,000 tokens with ties, in another order than that of their probabilities.
  constexpr std::size_t n = 3000;
  std::vector<float> logits(n);
  for (std::size_t i = 0; i < n; ++i) logits[i] = -0.002F * static_cast<float>((i * 1237 % n) / 2);
  const auto model = model_of_distribution(logits);
  for (const auto& [top_k, top_p, temperature] :
       {std::tuple(std::int64_t{n}, 0.02, 1.0), std::tuple(std::int64_t{n}, 0.5, 1.0),
        std::tuple(std::int64_t{n}, 0.999999, 0.7), std::tuple(std::int64_t{900}, 1.0, 1.3),
        std::tuple(std::int64_t{900}, 0.8, 2.0), std::tuple(std::int64_t{n}, 1.0, 0.5)}) {
    SCOPED_TRACE(testing::Message() << top_k << " " << top_p << " " << temperature);
    const SamplingOptions options = {.temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = 3};
    // The tokens that the definition keeps, and their weights.
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    order.resize(static_cast<std::size_t>(top_k));
    const auto weight = [&](std::size_t token) { return std::exp(logits[token] / temperature); };
    double total = 0, nucleus = 0;
    for (const std::size_t token : order) total += weight(token);
    std::vector<double> kept(n);
    for (const std::size_t token : order) {
      if (nucleus >= top_p * total) break;
      kept[token] = weight(token);
      nucleus += weight(token);
    }
    double drawn = 0, expected = 0, square = 0;
    for (std::size_t i = 0; i < n; ++i) {
      expected += kept[i] / nucleus * static_cast<double>(i);
      square += kept[i] / nucleus * static_cast<double>(i) * static_cast<double>(i);
    }
    for (const auto& stream : many_draws(model, options)) {
      for (const std::int32_t token : stream) {
        ASSERT_GT(kept[static_cast<std::size_t>(token)], 0) << token;
        drawn += token;
      }
    }
    // The mean of 30,000 draws, within five of its deviations.
    const double count = static_cast<double>(streams * steps);
    EXPECT_NEAR(drawn / count, expected, 5 * std::sqrt((square - expected * expected) / count));
  }
}

TEST(Sampling, TopKAndTopPTogetherKeepWhatBothAllow) {
  SamplingOptions options;
  options.top_k = 2;
  options.top_p = 0.9999;
  expect_draws_follow(options, at_least(0.20));
  options.top_k = 6;
  options.top_p = 0.25;
  expect_draws_follow(options, at_least(0.30));
}

TEST(Sampling, TopKOfEqualTokensKeepsK) {
  const auto model = model_of_distribution(std::vector<float>(9, 1.0f));
  SamplingOptions options;
  options.top_k = 4;
  std::set<std::int32_t> seen;
  for (const auto& stream : many_draws(model, options)) seen.insert(stream.begin(), stream.end());
  EXPECT_EQ(seen.size(), 4u);
}

TEST(Sampling, MixtureDrawsFollowItsDistributionHoweverTheyAreMade) {
  ModelConfig config = tiny_config();
  config.head = OutputDistribution::logistics;
  config.mixtures = 2;
  config.vocabulary = 6;
  config.positions = Positions::none;
  const Network network(config);
  Tensor values = Tensor::of<float>({network.table().size()});
  const std::vector<float> row = {0.3f, -0.4f, -0.6f, 0.7f, -1.2f, -0.5f};
  for (const auto& parameter : network.table().rows())
    if (parameter.name == "head.bias")
      std::copy(row.begin(), row.end(), parameter.place.of(values.span<float>()).data());
  const auto model = make_model(config, std::move(values));
  std::vector<double> p = reference::logistics_log_probabilities(in_double(row), 6);
  for (double& value : p) value = std::exp(value);

  const auto counts_of = [&](const SamplingOptions& options) {
    std::vector<double> counts(6);
    for (const auto& stream : many_draws(model, options))
      for (const std::int32_t token : stream) ++counts[static_cast<std::size_t>(token)];
    return counts;
  };
  expect_follows(counts_of({}), p);
  SamplingOptions options;
  options.temperature = 0.8;
  std::vector<double> tempered = p;
  for (double& value : tempered) value = std::pow(value, 1 / 0.8);
  expect_follows(counts_of(options), normalised(tempered));
  options = {};
  options.top_k = 2;
  std::vector<double> sorted = p, two = p;
  std::ranges::sort(sorted, std::greater());
  for (double& value : two)
    if (value < sorted[1]) value = 0;
  expect_follows(counts_of(options), normalised(two));
  const auto best = std::ranges::max_element(p) - p.begin();
  for (const auto& stream : many_draws(model, greedy())) ASSERT_EQ(stream[0], best);
}

}  // namespace
}  // namespace linnet
