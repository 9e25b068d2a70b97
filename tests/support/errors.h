#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "linnet/error.h"

namespace linnet {

/// What the E of `action` says; fails the test where there is none, or where it is no sentence.
template <class E = Error>
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("[")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected another kind of error, got: " << error.what();
    return {};
  }
  ADD_FAILURE() << "expected an error, got none";
  return {};
}

}  // namespace linnet
