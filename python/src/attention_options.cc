#include "attention_options.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "arrays.h"
#include "errors.h"
#include "linnet/attention.h"
#include "numbers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace linnet::python {
namespace {

struct MapObject {
  std::shared_ptr<const FeatureMap> map;
};

struct SimilarityObject {
  std::shared_ptr<const Similarity> similarity;
};

MapObject make_map(const std::string& name, float alpha, nb::handle head_dim, nb::handle features,
                   const std::string& directions, nb::handle seed, nb::handle draw, nb::handle layer) {
  constexpr const char* operation = "feature map";
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto number = [&](nb::handle value, const char* what) {
    return whole_of(value, operation, what, 0, most);
  };
  return {find_feature_map(
      name, {.alpha = alpha,
             .head_dim = number(head_dim, "head_dim"),
             .random = {.features = number(features, "features"),
                        .directions = find_directions(directions),
                        .seed = static_cast<std::uint64_t>(number(seed, "seed")),
                        .draw = static_cast<std::uint64_t>(number(draw, "draw")),
                        .layer = static_cast<int>(
                            whole_of(layer, operation, "layer", 0, std::numeric_limits<int>::max()))}})};
}

Normalise find_normalise(const std::string& name) {
  if (name == "sum") return Normalise::sum;
  if (name == "none") return Normalise::none;
  refuse("attention", "normalise 'sum' or 'none'", "'" + name + "'");
}

SparsePattern find_pattern(const std::string& name) {
  if (name == "strided") return SparsePattern::strided;
  if (name == "fixed") return SparsePattern::fixed;
  refuse("attention", "pattern 'strided' or 'fixed'", "'" + name + "'");
}

DType find_cache(const std::string& name) {
  if (name == "f32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  refuse("attention", "cache 'f32' or 'bf16'", "'" + name + "'");
}

AttentionOptions make_options(const std::string& family, const MapObject* map,
                              const SimilarityObject* similarity, const std::string& normalise, float epsilon,
                              bool compensated, float scale, int layer, std::int64_t left, std::int64_t right,
                              const std::string& pattern, std::int64_t stride, std::int64_t summary,
                              std::int64_t buckets, std::int64_t chunk, std::int64_t rounds,
                              std::uint64_t seed, const std::string& cache) {
  AttentionOptions options;
  options.family = find_family(family);
  options.scale = scale;
  options.layer = layer;
  if (map != nullptr) options.linear.feature_map = map->map;
  options.linear.normalise = options.kernel.normalise = find_normalise(normalise);
  options.linear.epsilon = options.kernel.epsilon = epsilon;
  options.linear.sums = compensated ? StateSums::compensated : StateSums::plain;
  if (similarity != nullptr) options.kernel.similarity = similarity->similarity;
  options.local = {left, right};
  options.strided = {find_pattern(pattern), stride, summary};
  options.lsh = {buckets, chunk, rounds, seed};
  options.softmax.cache = find_cache(cache);
  return options;
}

nb::list family_rows() {
  nb::list rows;
  for (const FamilyInfo& info : family_table()) {
    nb::dict row;
    row["name"] = info.name;
    row["masks"] = info.masks;
    row["recurrent"] = info.recurrent;
    row["cost"] = info.cost;
    row["training"] = info.training;
    row["state"] = info.state;
    row["takes_feature_map"] = info.takes_feature_map;
    row["takes_decay"] = info.takes_decay;
    row["takes_projections"] = info.takes_projections;
    row["keys_are_queries"] = info.keys_are_queries;
    rows.append(row);
  }
  return rows;
}

nb::list map_rows() {
  nb::list rows;
  const auto add = [&](const FeatureMapInfo& info, bool random) {
    nb::dict row;
    row["name"] = info.name;
    row["formula"] = info.formula;
    row["features"] = info.features;
    row["non_negative"] = info.non_negative;
    row["random"] = random;
    rows.append(row);
  };
  for (const FeatureMapInfo& info : feature_map_table()) add(info, false);
  for (const FeatureMapInfo& info : random_feature_map_table()) add(info, true);
  return rows;
}

nb::list similarity_rows() {
  nb::list rows;
  for (const SimilarityInfo& info : similarity_table()) {
    nb::dict row;
    row["name"] = info.name;
    row["formula"] = info.formula;
    row["parameters"] = info.parameters;
    rows.append(row);
  }
  return rows;
}

/// φ of the rows of x [rows, E], as [rows, F], with e^s multiplied in.
NumpyArray features_of_rows(const MapObject& self, nb::handle x, bool query) {
  const auto rows = view_of<const float>(x, "features", "x");
  if (rows.rank() != 2) refuse("features", "x [rows, head_dim]", to_string(rows.shape()));
  Tensor y = Tensor::of<float>({rows.extent(0), self.map->features(rows.extent(1))});
  if (y.size() > 0) {
    const nb::gil_scoped_release released;
    self.map->forward(y.view<float>(), rows, {.query = query});
  }
  return numpy_of(std::move(y));
}

}  // namespace

void bind_attention_options(nb::module_& module) {
  nb::class_<MapObject>(module, "FeatureMap",
                        "A feature map of the linear family; ``linnet.feature_map`` makes one.")
      .def_prop_ro("name", [](const MapObject& self) { return self.map->name(); })
      .def(
          "features",
          [](const MapObject& self, std::int64_t head_dim) { return self.map->features(head_dim); },
          "head_dim"_a, "F, the number of features of a row of `head_dim` numbers.")
      .def("__call__", &features_of_rows, "x"_a, "query"_a = true,
           "The features [rows, F] of x [rows, head_dim], float32.")
      .def("__repr__", [](const MapObject& self) { return "<linnet.FeatureMap: " + self.map->name() + ">"; });
  module.def(
      "feature_map", &make_map, "name"_a, "alpha"_a = 1.0f, "head_dim"_a = 0, "features"_a = 0,
      "directions"_a = "auto", "seed"_a = 0, "draw"_a = 0, "layer"_a = 0,
      nb::sig("def feature_map(name: str, alpha: float = 1.0, head_dim: int = 0, features: int = 0, "
              "directions: str = 'auto', seed: int = 0, draw: int = 0, layer: int = 0) -> FeatureMap"),
      "A built-in feature map.\n\n"
      "Parameters\n----------\n"
      "name : str\n    One of ``linnet.feature_maps()``.\n"
      "alpha : float\n    Of elu, above 0; up to 1 its features are positive.\n"
      "head_dim : int\n    E, which random maps need.\n"
      "features : int\n    F of a random map; 0 stands for E ln E, rounded up to a multiple of 16.\n"
      "directions : str\n    ``orthogonal`` (blocks of E), ``independent``, ``hadamard``: blocks that take "
      "3 E log2 E additions a row instead\n    of 2 E^2 FLOPs, E a power of two from 8 on; or ``auto``: "
      "hadamard where E is 16, 32, 64, 128 or 256,\n    orthogonal elsewhere.\n"
      "seed, draw, layer : int\n    What decides the random directions.");
  nb::class_<SimilarityObject>(module, "Similarity", "A similarity of the kernel family.")
      .def_prop_ro("name", [](const SimilarityObject& self) { return self.similarity->name(); });
  module.def(
      "similarity",
      [](const std::string& name, double offset, int power, double sigma) {
        return SimilarityObject{find_similarity(name, {offset, power, sigma})};
      },
      "name"_a, "offset"_a = 1.0, "power"_a = 2, "sigma"_a = 0.0,
      "A built-in similarity sim(q, k) >= 0 of the kernel family (Katharopoulos et al. 2020, equation 3).\n\n"
      "Parameters\n----------\n"
      "name : str\n    One of ``linnet.similarities()``: exponential, exp(q.k / sqrt(E)); polynomial, "
      "(q.k / sqrt(E) + offset)^power;\n    gaussian, exp(-|q - k|^2 / (2 sigma^2)).\n"
      "offset : float\n    Of polynomial, at least 0.\n"
      "power : int\n    Of polynomial, even, 2 ... 64.\n"
      "sigma : float\n    Of gaussian, at least 0; 0 stands for E^(1/4).\n\n"
      "Raises\n------\n"
      "linnet.UsageError\n    For another name and for values beyond these.");
  nb::class_<AttentionOptions>(module, "AttentionOptions")
      .def_static("make", &make_options, "family"_a, "feature_map"_a.none() = nb::none(),
                  "similarity"_a.none() = nb::none(), "normalise"_a = "sum", "epsilon"_a = 1e-6f,
                  "compensated"_a = true, "scale"_a = 0.0f, "layer"_a = 0, "left"_a = 128, "right"_a = 0,
                  "pattern"_a = "strided", "stride"_a = 0, "summary"_a = 8, "buckets"_a = 0, "chunk"_a = 64,
                  "rounds"_a = 1, "seed"_a = 0, "cache"_a = "f32");
  module.def(
      "families", &family_rows,
      "The attention families: a list of dictionaries with name, masks, recurrent, cost, training, state and "
      "what they take.");
  module.def("feature_maps", &map_rows, "The feature maps of the linear family, a list of dictionaries.");
  module.def("similarities", &similarity_rows,
             "The similarities of the kernel family, a list of dictionaries.");
}

}  // namespace linnet::python
