#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "approximate/approximate.h"
#include "attention/feature_maps/random_draws.h"

namespace linnet {
namespace {

/// Errors fall as 1/√F once they are well below 1, and more slowly before. As they fell between the last two
/// numbers of features, they are taken to fall a few times further, and no faster than 1/√F.
constexpr double most_slope = 0.5;
constexpr double least_slope = 0.1;
constexpr double most_foretold = 16;  ///< times the largest number that was measured
/// Of a single number of features nothing says how errors fall.
constexpr double most_error_of_one = 0.35;
constexpr double most_foretold_of_one = 4;

/// Rounded up to two digits: more would pretend.
std::int64_t rounded_up(double value) {
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(value)) - 1));
  return static_cast<std::int64_t>(std::ceil(value / unit) * unit);
}

/// `per_feature` is the number of tokens, for each feature, from which the linear family takes less work than
/// softmax.
Json advice_of(const std::string& name, const std::vector<Json>& rows, double wanted, const Json& norms,
               double per_feature) {
  Json result = {{"map", rows.front()["map"]},
                 {"directions", rows.front()["directions"]},
                 {"wanted", wanted},
                 {"features", nullptr}};
  const auto error = [](const Json& row) {
    const Json& value = row["output"]["error"];
    return value.is_null() ? INFINITY : value.get<double>();
  };
  for (const Json& row : rows) {
    if (error(row) > wanted) continue;
    const std::int64_t features = row["features"];
    result["verdict"] = "measured";
    result["features"] = features;
    result["text"] = fmt::format(
        "{}: {} features give an output error of {:.2g}; beyond about {} tokens that is less work "
        "than exact softmax.",
        name, features, error(row), per_feature * features);
    return result;
  }
  const Json& last = rows.back();
  const double features = last["features"], at_most = error(last);
  double slope = at_most <= most_error_of_one ? most_slope : 0, most = most_foretold_of_one;
  const auto before = std::find_if(rows.rbegin(), rows.rend(),
                                   [&](const Json& row) { return row["features"].get<double>() < features; });
  if (before != rows.rend()) {
    most = most_foretold;
    slope = std::min(most_slope, std::log(error(*before) / at_most) /
                                     std::log(features / (*before)["features"].get<double>()));
  }
  const double needed = slope >= least_slope ? features * std::pow(at_most / wanted, 1 / slope) : INFINITY;
  if (needed <= most * features) {
    const std::int64_t estimate = rounded_up(needed);
    result["verdict"] = "foretold";
    result["features"] = estimate;
    result["text"] = fmt::format(
        "{}: about {} features for an error of {:g}, extrapolated from {:.2g} with {}; exact softmax is less "
        "work "
        "below about {} tokens.",
        name, estimate, wanted, at_most, last["features"].get<std::int64_t>(), per_feature * estimate);
    return result;
  }
  result["verdict"] = "beyond";
  result["text"] = fmt::format(
      "{}: an error of {:g} takes more than {} features, if any number suffices: it is {} with {}. The "
      "norms of queries and keys are {:.3g} and {:.3g} and logits reach {:.3g}. Measure larger numbers with "
      "--features, use softmax, or train with the map.",
      name, wanted, static_cast<std::int64_t>(most * features),
      std::isfinite(at_most) ? fmt::format("{:.2g}", at_most) : "infinite",
      last["features"].get<std::int64_t>(), norms["query"].get<double>(), norms["key"].get<double>(),
      norms["largest_logit"].get<double>());
  return result;
}

}  // namespace

std::string plain_directions(const Json& rows) {
  const auto found =
      std::ranges::find_if(rows, [](const Json& row) { return row["directions"] != "independent"; });
  return found == rows.end() ? "independent" : (*found)["directions"];
}

Json advice(const Json& rows, double wanted, const Json& norms, bool causal) {
  const std::string plain = plain_directions(rows);
  std::map<std::string, std::vector<Json>> maps;  // by the map and its directions, for people
  for (const Json& row : rows) {
    const std::string map = row["map"], directions = row["directions"];
    if (directions == "independent" && plain != "independent") continue;
    maps[directions == plain ? map : fmt::format("{} with {} directions", map, directions)].push_back(row);
  }
  Json result = Json::array();
  for (auto& [name, own] : maps) {
    std::stable_sort(own.begin(), own.end(), [](const Json& a, const Json& b) {
      return a["features"].get<std::int64_t>() < b["features"].get<std::int64_t>();
    });
    // A token takes the linear family 4 F (M + E / r) FLOPs, r the features a direction, and softmax 2 (E +
    // M) for each key that it sees.
    const double directions = 1.0 / features_a_direction(find_random_map(own.front()["map"]));
    result.push_back(advice_of(name, own, wanted, norms, (causal ? 2 : 1) * (1 + directions)));
  }
  return result;
}

}  // namespace linnet
