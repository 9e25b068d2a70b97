#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "linnet/error.h"

namespace linnet {

/// "[operation] sentence". Of a sentence that quotes a file at great length the middle is left out.
std::string error_message(const char* operation, std::string sentence);

/// Throws E with "[operation] message".
template <class E = Error, class... Arguments>
[[noreturn]] void fail(const char* operation, fmt::format_string<Arguments...> message,
                       Arguments&&... arguments) {
  throw E(error_message(operation, fmt::format(message, std::forward<Arguments>(arguments)...)));
}

}  // namespace linnet
