#include "data/fasta.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "base/fail.h"
#include "base/lists.h"
#include "data/files.h"
#include "data/selection.h"
#include "io/file.h"

namespace linnet {
namespace {

/// As it is, or as a number where it cannot be printed.
std::string shown(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  return byte > 32 && byte < 127 ? fmt::format("'{}'", letter) : fmt::format("byte {}", byte);
}

/// A sequence, and its index among all of the files.
struct Numbered {
  Sequence tokens;
  std::int64_t number = 0;
};

std::vector<Numbered> numbered(std::vector<Sequence> sequences) {
  std::vector<Numbered> result;
  for (Sequence& sequence : sequences) result.push_back({std::move(sequence), std::ssize(result)});
  return result;
}

class PieceDataset final : public Dataset {
 public:
  PieceDataset(std::vector<Numbered> sequences, std::int64_t length)
      : sequences_(std::move(sequences)), length_(length) {
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      const auto tokens = std::ssize(sequences_[s].tokens);
      const std::int64_t pieces = tokens / length + (tokens % length != 0 ? 1 : 0);
      for (std::int64_t piece = 0; piece < pieces; ++piece)
        pieces_.push_back({s, tokens * piece / pieces, tokens * (piece + 1) / pieces});
    }
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(pieces_.size()); }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(residues.size()); }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    assert(index >= 0 && index < size());
    const auto& [sequence, begin, end] = pieces_[static_cast<std::size_t>(index)];
    for (std::int64_t i = 0; i < length_; ++i) {
      const bool inside = begin + i < end;
      const std::int32_t token =
          inside ? sequences_[sequence].tokens[static_cast<std::size_t>(begin + i)] : -1;
      tokens[static_cast<std::size_t>(i)] = token;
      targets[static_cast<std::size_t>(i)] = token < first_ambiguous_residue ? token : -1;
    }
    return -1;
  }
  std::int64_t steps(std::int64_t index) const override {
    const Piece& piece = pieces_[static_cast<std::size_t>(index)];
    return piece.end - piece.begin;
  }
  std::int64_t number(std::int64_t index) const {
    return sequences_[pieces_[static_cast<std::size_t>(index)].sequence].number;
  }

 private:
  struct Piece {
    std::size_t sequence;
    std::int64_t begin, end;
  };
  std::vector<Numbered> sequences_;
  std::int64_t length_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::int32_t residue_of(char letter) {
  if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  const std::size_t at = residues.find(letter);
  return at == std::string_view::npos ? -1 : static_cast<std::int32_t>(at);
}

std::vector<Sequence> parse_fasta(std::string_view text, const std::string& origin) {
  text = without_byte_order_mark(text);
  std::vector<Sequence> sequences;
  std::int64_t number = 0, header = 0, stop = 0;  // lines; 0 where there is none
  const auto check_last = [&] {
    if (!sequences.empty() && sequences.back().empty())
      fail("fasta", "{}: expected residues behind the header of line {}, got none", origin, header);
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = without_blanks(text.substr(begin, end - begin), " \t\r");
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    if (line.front() == '>') {
      check_last();
      sequences.emplace_back();
      header = number;
      stop = 0;
      continue;
    }
    if (sequences.empty())
      fail("fasta", "{}: expected a header that begins with '>' before any residues, got {} in line {}",
           origin, shown(line.front()), number);
    for (const char letter : line) {
      const std::int32_t token = residue_of(letter);
      if (stop != 0)
        fail("fasta", "{}: expected '*' at the end of a sequence alone, got it inside in line {}", origin,
             stop);
      if (letter == '*')
        stop = number;
      else if (token < 0)
        fail("fasta", "{}: expected residues of {}, got {} in line {}", origin, residues, shown(letter),
             number);
      else
        sequences.back().push_back(static_cast<std::uint8_t>(token));
    }
  }
  check_last();
  if (sequences.empty()) fail("fasta", "{}: expected at least 1 sequence, got an empty file", origin);
  return sequences;
}

std::unique_ptr<Dataset> sequence_pieces(std::vector<Sequence> sequences, std::int64_t length) {
  return std::make_unique<PieceDataset>(numbered(std::move(sequences)), length);
}

std::optional<std::int64_t> sequence_of(const Dataset& dataset, std::int64_t index) {
  const auto* const pieces = opened_as<PieceDataset>(dataset);
  if (pieces == nullptr) return std::nullopt;
  return pieces->number(index_in_whole(dataset, index));
}

Datasets open_fasta(const DataOptions& options, const Parts& parts) {
  check_example_length(options, "sequences");
  const auto read = [](const char* key, const std::string& value) {
    std::vector<Sequence> sequences;
    for (const std::filesystem::path& path : files_named(key, value, "fasta"))
      for (Sequence& sequence : parse_fasta(read_maybe_gzipped(path, most_fasta_bytes), path.string()))
        sequences.push_back(std::move(sequence));
    return numbered(std::move(sequences));
  };
  const auto hold_out = [&](std::vector<Numbered>& all) {
    if (all.size() < held_out_every)
      fail("data", "{}: expected at least {} sequences, every tenth of which is held out, got {}",
           options.path, held_out_every, all.size());
    return take_held_out(all);
  };
  auto [training, validation, test] = read_parts(options, parts, read, hold_out);
  Datasets datasets;
  if (training) datasets.training = std::make_unique<PieceDataset>(std::move(*training), options.length);
  if (validation)
    datasets.validation = std::make_unique<PieceDataset>(std::move(*validation), options.length);
  if (test) datasets.test = std::make_unique<PieceDataset>(std::move(*test), options.length);
  return datasets;
}

}  // namespace linnet
