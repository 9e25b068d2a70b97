// A batch of CIFAR-10, as all files of a folder of the data. The first byte chooses the size and the levels;
// with an odd one each byte of the input stands for 29 of the file.

#include "base/fail.h"
#include "data/cifar.h"
#include "fuzz.h"
#include "read_examples.h"

namespace linnet::fuzz {

void answer(std::string_view input) {
  constexpr std::size_t times = 29;  // 106 bytes make a record, whose length is a multiple of 29 less 1
  const std::uint8_t choice = take_choice(input);
  std::string bytes(input);
  if (choice % 2 != 0) {
    bytes.clear();
    for (const char c : input) bytes.append(times, c);
    bytes.resize(bytes.size() - bytes.size() % 3073);
  }
  const auto& folder = empty_folder();
  for (const auto& path : cifar_files(folder)) put(path, bytes);
  read_cifar(cifar_files(folder).front());
  read_examples(open_datasets({.kind = "cifar10",
                               .path = folder.string(),
                               .size = choice / 2 % 4 * 10,
                               .levels = 2 + choice % 255,
                               .labels = choice < 128}));
}

std::vector<std::string> seeds() {
  std::string record(3073, '\x07');
  std::string small;
  for (int i = 0; i < 212; ++i) small += static_cast<char>(i % 10);
  return {with_choice(0, record), with_choice(2, record), with_choice(134, record + record),
          with_choice(3, small)};
}

std::vector<std::string> words() { return {"\x09", "\x0a", std::string(32, '\xff')}; }

}  // namespace linnet::fuzz
