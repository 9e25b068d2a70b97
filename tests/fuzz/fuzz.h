#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/options.h"
#include "linnet/error.h"

// A fuzz target is a program of fuzz.cc and NAME_fuzz.cc, which defines the first three functions.
namespace linnet::fuzz {

/// Gives the input to what is tested. Throws Error where Linnet refuses it. Another exception, a signal, a
/// report of a sanitizer, and too much time or memory are findings.
void answer(std::string_view input);

/// Inputs from which fuzzing starts. `answer` accepts each of them. Made by Linnet itself where it can, so
/// that they follow its formats.
std::vector<std::string> seeds();

/// Words of the format, which libFuzzer puts into inputs.
std::vector<std::string> words();

// For the targets:

/// Reports a finding that no sanitizer sees, and ends the process.
[[noreturn]] void report(const std::string& finding);

/// body(), which reads what Linnet has written: that it is refused is a finding too.
template <class Body>
auto read_again(const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    report(std::string("expected what was written to be read, got: ") + error.what());
  }
}

/// An empty folder in memory, the same at every call; what it had in it is gone.
const std::filesystem::path& empty_folder();

/// Writes a file without flushing it to a disk. Returns the path.
std::filesystem::path put(const std::filesystem::path& path, std::string_view bytes);

/// The first byte of the input, which is taken off it; 0 where there is none. By it an input chooses among
/// ways to read the rest.
std::uint8_t take_choice(std::string_view& input);

/// The input behind such a byte.
std::string with_choice(int choice, std::string_view input);

/// The keys of options, their last parts and the values that they may have.
std::vector<std::string> words_of(const Options& options);

}  // namespace linnet::fuzz
