#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// Letters of protein sequences, token 0 first: the 20 amino acids, O and U (pyrrolysine, selenocysteine),
/// and B, J, X, Z, which stand for several (IUPAC-IUB 1984).
inline constexpr std::string_view residues = "ACDEFGHIKLMNPQRSTVWYOUBJXZ";

/// Tokens of `residues` from here on name no single amino acid: inputs, but never targets.
inline constexpr std::int32_t first_ambiguous_residue = 22;

/// The token of a letter, small or capital; −1 for a letter of no residue.
std::int32_t residue_of(char letter);

/// The most that a FASTA file may hold when it is inflated.
inline constexpr std::size_t most_fasta_bytes = std::size_t{1} << 32;

/// The tokens of one sequence.
using Sequence = std::vector<std::uint8_t>;

/// The sequences of a FASTA file's text. A sequence follows its header line, which begins with
/// '>', over any number of lines; small letters count as capitals, blank lines and a '*' at a sequence's end
/// (a stop) are left out. Throws Error, naming `origin` and the line, for text before the first header,
/// headers without residues and whatever is no residue; and for a text without any sequence.
std::vector<Sequence> parse_fasta(std::string_view text, const std::string& origin);

/// The sequences as examples of `length` tokens. A longer one is cut into as few pieces as possible, as equal
/// as possible; a shorter one is padded.
std::unique_ptr<Dataset> sequence_pieces(std::vector<Sequence> sequences, std::int64_t length);

/// The sequence that example `index` is a piece of: its index among all of the files, from 0. Nothing for
/// data that are no such pieces.
std::optional<std::int64_t> sequence_of(const Dataset& dataset, std::int64_t index);

/// The kind "fasta" of open_datasets.
Datasets open_fasta(const DataOptions& options, const Parts& parts);

}  // namespace linnet
