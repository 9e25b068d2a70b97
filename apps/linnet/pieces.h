#pragma once

#include <memory>
#include <string>

#include "linnet/communicator.h"
#include "linnet/generation.h"

namespace linnet {

/// Sequences of a model with several fields per step, or of pitches.
struct Pieces {
  std::string out;     ///< .safetensors, or for a single piece of pitches .mid or .png
  std::string prompt;  ///< a piece that all of them begin with: .mid, or a file of tokens; may be empty
  std::int64_t count = 1;
  std::int64_t length = 0;  ///< steps each, behind those of the prompt
  std::int64_t label = -1;
  std::int64_t first_pitch = 21;  ///< of token 1; token 0 is silence
  double tempo = 80;              ///< quarter notes, of four steps, per minute
  SamplingOptions sampling;
  int threads = 0;
  std::int64_t streams = 64;  ///< sequences drawn at the same time
};

/// Throws UsageError, before anything is drawn, where the file cannot hold what is asked for.
void check_pieces(const ModelConfig& config, const Pieces& pieces);

/// Draws the sequences and writes the file: tokens [steps, fields] with offsets [pieces + 1] as
/// `data.kind = "tokens"` reads them, a MIDI file, or a picture of the piano roll. The ranks share the
/// sequences; rank 0 writes.
void write_pieces(const std::shared_ptr<const Model>& model, const Pieces& pieces, Communicator& ranks);

}  // namespace linnet
