#pragma once

#include <nlohmann/json_fwd.hpp>

namespace linnet {

/// Objects keep the order in which their members were added.
using Json = nlohmann::ordered_json;

}  // namespace linnet
