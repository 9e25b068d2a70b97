#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layers/parameters.h"
#include "linnet/feature_map.h"

namespace linnet {

/// The draws of a layer's random feature map. They lie among the parameters, so that they are saved with
/// them, but nothing trains them; every so many training steps they may be drawn anew.
class FeatureDraws {
 public:
  FeatureDraws(ParameterTable& table, const std::string& name, std::string map, std::int64_t head_dim,
               const RandomFeatureOptions& options);

  /// The map with the draws in the buffer; null where they are those of the last call.
  std::shared_ptr<const FeatureMap> pack(const ParameterValues& parameters);

  /// Writes the draws that come at the `draw`-th time into the buffer; the first ones have number 0.
  void redraw(std::span<float> parameters, std::uint64_t draw) const;

 private:
  /// Numbers of a draw and where they lie.
  struct Part {
    ParameterPlace place;
    std::vector<float> RandomDraws::*numbers;
  };

  std::string map_;
  std::int64_t head_dim_;
  RandomFeatureOptions options_;
  std::vector<Part> parts_;
  RandomDraws last_;
};

}  // namespace linnet
