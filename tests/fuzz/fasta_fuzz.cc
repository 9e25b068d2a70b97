// A FASTA file: the sequences, and the examples of the data kind. The first byte chooses the length.

#include "base/fail.h"
#include "data/fasta.h"
#include "fuzz.h"
#include "read_examples.h"

namespace linnet::fuzz {

void answer(std::string_view input) {
  const std::int64_t length = 1 + take_choice(input) % 40;
  parse_fasta(input, "input");
  try {
    const auto path = put(empty_folder() / "input.fasta", input);
    read_examples(open_datasets({.kind = "fasta", .path = path.string(), .length = length}));
  } catch (const Error&) {
    // Fewer sequences than one to hold out.
  }
}

std::vector<std::string> seeds() {
  std::string ten;
  for (int i = 0; i < 12; ++i) ten += ">sp|P0|" + std::to_string(i) + " name\nMKVLAAGIVG\nlldqwertyx*\n\n";
  return {with_choice(3, ten), with_choice(0, ">a\r\nACDEFGHIKLMNPQRSTVWYOUBJXZ\r\n"),
          with_choice(255, "\n>\nA")};
}

std::vector<std::string> words() { return {">", "\n>", "*\n", "\r\n", "BJXZOU"}; }

}  // namespace linnet::fuzz
