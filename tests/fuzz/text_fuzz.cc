// A file of text or of any bytes. The first byte chooses the kind and the length of examples.

#include "base/fail.h"
#include "fuzz.h"
#include "read_examples.h"

namespace linnet::fuzz {

void answer(std::string_view input) {
  const std::uint8_t choice = take_choice(input);
  const auto path = put(empty_folder() / "input.txt", input);
  read_examples(open_datasets(
      {.kind = choice % 2 == 0 ? "text" : "bytes", .path = path.string(), .length = choice / 2 % 32}));
}

std::vector<std::string> seeds() {
  std::string text, bytes;
  for (int i = 0; i < 200; ++i) text += "word " + std::to_string(i) + (i % 10 == 9 ? "\n" : " \xc3\xa9 ");
  for (int i = 0; i < 512; ++i) bytes += static_cast<char>(i);
  return {with_choice(2 * 16, text), with_choice(2 * 31 + 1, bytes), with_choice(2, "ten bytes."),
          with_choice(2 * 3 + 1, bytes)};
}

std::vector<std::string> words() { return {std::string(1, '\0'), "\n", "\xef\xbb\xbf"}; }

}  // namespace linnet::fuzz
