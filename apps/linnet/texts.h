#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "linnet/communicator.h"
#include "linnet/generation.h"

namespace linnet {

/// Texts that a model is to write: new ones after a prompt, or the rest of saved streams.
struct Texts {
  std::string prompt, prompt_file;  ///< one of the two; - for standard input
  std::string out;                  ///< file; empty: standard output
  std::string states, save_states;  ///< files of streams to go on with, and of those that `steps` stops
  std::int64_t count = 0;           ///< 0: one
  std::int64_t streams = 64;        ///< texts drawn at the same time
  std::int64_t length = 0;          ///< tokens to draw for a new text; 0: model.length
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();  ///< tokens drawn of each, at most
  std::vector<std::int64_t> labels = {};                          ///< of the texts in turn
  SamplingOptions sampling = {};
  Session::Options session = {};
  std::vector<std::string> stop = {};  ///< a text ends before the first of these
  bool residues = false;  ///< whether tokens are the residues of proteins, and written as their letters
  bool json = false;
};

/// Draws the texts and writes them, on standard output the first of those that are drawn together token by
/// token and the others at their end. The ranks share the texts; rank 0 writes.
void write_texts(const std::shared_ptr<const Model>& model, const Texts& wanted, Communicator& ranks);

}  // namespace linnet
