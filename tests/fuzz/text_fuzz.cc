// A file of text, of any bytes, of labelled lines or of pairs. The first byte chooses the kind and the length
// of examples.

#include "base/fail.h"
#include "fuzz.h"
#include "read_examples.h"

namespace linnet::fuzz {

void answer(std::string_view input) {
  const std::uint8_t choice = take_choice(input);
  const auto path = put(empty_folder() / "input.txt", input);
  const char* const kinds[] = {"text", "bytes", "lines", "pairs"};
  read_examples(open_datasets({.kind = kinds[choice % 4], .path = path.string(), .length = choice / 4 % 32}));
}

std::vector<std::string> seeds() {
  std::string text, bytes;
  for (int i = 0; i < 200; ++i) text += "word " + std::to_string(i) + (i % 10 == 9 ? "\n" : " \xc3\xa9 ");
  for (int i = 0; i < 512; ++i) bytes += static_cast<char>(i);
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += std::to_string(i % 3) + "\tline" + std::to_string(i) + "\r\n\n";
  return {with_choice(4 * 16, text),     with_choice(4 * 31 + 1, bytes), with_choice(4, "ten bytes."),
          with_choice(4 * 3 + 1, bytes), with_choice(4 * 4 + 2, lines),  with_choice(4 * 20 + 3, lines)};
}

std::vector<std::string> words() { return {std::string(1, '\0'), "\n", "\t", "\xef\xbb\xbf"}; }

}  // namespace linnet::fuzz
