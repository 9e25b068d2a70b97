#pragma once

#include <memory>
#include <string>

#include "linnet/communicator.h"
#include "linnet/generation.h"

namespace linnet {

/// What a model is to write to sources, and how.
struct Answers {
  std::string source, source_file;  ///< one of the two: a source, or a file with one on each line
  std::string out;                  ///< file for the answers, a line each; empty: standard output
  std::int64_t length = 0;          ///< most tokens of an answer; 0: model.length
  SamplingOptions sampling;
  bool json = false;
  int threads = 0;
  std::int64_t streams = 64;  ///< answers drawn at the same time
};

/// Whether a model writes answers to sources: one with an encoder, or a decoder of pairs, whose sources are
/// the first part of its sequences.
bool answers_sources(const Model& model);

/// Reads the sources and writes the answers. Sources and answers of a model of pairs are
/// text, whose answers end by themselves; those of other models are numbers. Says where sources are longer
/// than those of training. The ranks share the sources; rank 0 writes.
void write_answers(const std::shared_ptr<const Model>& model, const Answers& answers, Communicator& ranks);

}  // namespace linnet
