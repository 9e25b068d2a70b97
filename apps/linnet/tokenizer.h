#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace linnet {

/// Trains a model of SentencePiece with `size` pieces on a text: unigram pieces (Kudo, "Subword
/// regularization", 2018, section 3.2) that keep every character, blanks included, and the 256 bytes for what
/// has no piece, so that tokens give back the text. Returns the bytes of its file. Throws UsageError for
/// fewer pieces than the bytes and characters of the text need, for more than it has, and where Linnet was
/// built without SentencePiece; Error for an empty text.
std::string train_tokenizer(std::string_view text, std::int64_t size);

}  // namespace linnet
