#pragma once

#include <gtest/gtest.h>

#include <string>

#include "apps/program.h"

namespace linnet {

inline constexpr int failed = 1, usage = 2;

/// The program refuses: that exit status, one line on standard error that mentions all of `words`, nothing on
/// standard output.
inline void refuses(int status, const Strings& arguments, const Strings& words,
                    const Program::Limits& limits = {}) {
  std::string line = "linnet";
  for (const std::string& argument : arguments) line += " " + argument.substr(0, 200);
  SCOPED_TRACE(line);
  const Ended ended = run_linnet(arguments, limits);
  EXPECT_EQ(ended.signal, 0) << ended.err;
  EXPECT_EQ(ended.status, status) << ended.err;
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(lines_of(ended.err).size(), 1u) << ended.err;
  EXPECT_TRUE(ended.err.starts_with("linnet")) << ended.err;
  for (const std::string& word : words)
    EXPECT_NE(ended.err.find(word), std::string::npos) << word << " in: " << ended.err;
}

}  // namespace linnet
