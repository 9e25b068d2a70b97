#pragma once

#include <fmt/format.h>

#include <utility>

#include "linnet/error.h"

namespace linnet {

/// Throws E with "[operation] message".
template <class E = Error, class... Arguments>
[[noreturn]] void fail(const char* operation, fmt::format_string<Arguments...> message,
                       Arguments&&... arguments) {
  throw E(fmt::format("[{}] {}", operation, fmt::format(message, std::forward<Arguments>(arguments)...)));
}

}  // namespace linnet
