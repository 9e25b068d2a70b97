// Files of token ids. The first byte chooses the format, the length of examples and what data.fields says; a
// NumPy file comes with offsets, which begin in the middle of the input.

#include <span>

#include "base/fail.h"
#include "fuzz.h"
#include "read_examples.h"
#include "support/npy.h"

namespace linnet::fuzz {

void answer(std::string_view input) {
  const std::uint8_t choice = take_choice(input);
  const std::filesystem::path& folder = empty_folder();
  const char* const fields[] = {"", "", "300", "70000,9"};
  DataOptions options{.kind = "tokens", .length = 1 + choice / 4 % 16, .fields = fields[choice / 64]};
  if (choice % 4 == 0) {
    options.path = put(folder / "input.safetensors", input).string();
  } else if (choice % 4 == 1) {
    options.path = put(folder / "input.npy", input.substr(0, input.size() / 2)).string();
    put(folder / "input.offsets.npy", input.substr(input.size() / 2));
  } else {
    options.path = put(folder / "input.bin", input).string();
    options.token_bytes = choice % 4 == 2 ? 2 : 4;
  }
  options.validation = options.path;
  read_examples(open_datasets(options));
  options.validation = "";
  try {
    read_examples(open_datasets(options));
  } catch (const Error&) {
    // Fewer pieces than one to hold out.
  }
}

std::string bytes_of(std::span<const std::int64_t> values, std::size_t each) {
  std::string bytes;
  for (const std::int64_t value : values) bytes.append(reinterpret_cast<const char*>(&value), each);
  return bytes;
}

std::vector<std::string> seeds() {
  std::vector<std::int64_t> tokens(48);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int64_t>(i * 7 % 50);
  const std::vector<std::int64_t> few = {0, 2, 4, 4, 5, 6, 11, 16},
                                  many = {0, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 24};
  // Without digests, which every change of an element would contradict.
  std::string header = R"({"offsets":{"dtype":"I64","shape":[12],"data_offsets":[0,96]},)"
                       R"("tokens":{"dtype":"I16","shape":[24,2],"data_offsets":[96,192]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const auto header_bytes = static_cast<std::int64_t>(header.size());
  // Two NumPy files of one size.
  const std::string numpy =
      npy_file("{'descr': '<i4', 'fortran_order': False, 'shape': (16,), }",
               bytes_of(std::span(tokens).first(16), 4)) +
      npy_file("{'descr': '<i8', 'fortran_order': False, 'shape': (8,), }", bytes_of(few, 8));
  const std::string raw = bytes_of(tokens, 4);
  return {with_choice(4 * 3, bytes_of(std::span(&header_bytes, 1), 8) + header + bytes_of(many, 8) +
                                 bytes_of(tokens, 2)),
          with_choice(1 + 4 * 3, numpy),
          with_choice(2 + 4 * 6, raw),
          with_choice(3, raw),
          with_choice(2 + 128, raw),
          with_choice(2 + 192 + 4, std::string(240, '\0'))};
}

std::vector<std::string> words() {
  return {"\"tokens\"", "\"offsets\"", "\"I32\"", "\"U16\"", "'<i4'", "'|u1'", "(9,)", std::string(8, '\0')};
}

}  // namespace linnet::fuzz
