#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace linnet {

/// "16,32,64" and doubling ranges "512:65536", mixed. Throws UsageError of the `operation`.
std::vector<std::int64_t> number_list(const std::string& option, const std::string& text,
                                      const char* operation);
/// "linear,softmax". Throws UsageError of the `operation` for an empty list.
std::vector<std::string> name_list(const std::string& option, const std::string& text, const char* operation);
/// The same, where all names must be in `known`.
std::vector<std::string> known_list(const std::string& option, const std::string& text,
                                    const std::vector<std::string>& known, const char* operation);

}  // namespace linnet
