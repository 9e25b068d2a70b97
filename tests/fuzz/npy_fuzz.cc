// The header of a NumPy file, with as many bytes behind it as the first byte says.

#include "fuzz.h"
#include "io/npy.h"
#include "support/npy.h"

namespace linnet::fuzz {

void answer(std::string_view input) {
  const std::uint8_t elements = take_choice(input);
  const std::string bytes = std::string(input) + std::string(elements, '\1');
  const InputFile file(put(empty_folder() / "input.npy", bytes));
  const NpyHeader header = read_npy_header(file, "input.npy");
  if (static_cast<std::uint64_t>(checked_size(header.shape, header.bytes)) * header.bytes !=
      file.size() - header.data)
    report("expected as many elements as the file has bytes for");
}

std::vector<std::string> seeds() {
  return {with_choice(24, npy_file("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }", "")),
          with_choice(3, npy_file("{'descr': '|u1', 'fortran_order': True, 'shape': (3,), }", "", 2)),
          with_choice(8, npy_file("{'descr': '=f8', 'fortran_order': False, 'shape': (), }", "", 3))};
}

std::vector<std::string> words() {
  return {"'descr'", "'fortran_order'", "'shape'", "True", "False", "'<i8'", "'|b1'", "(", ")",
          ", ",      "\x93NUMPY"};
}

}  // namespace linnet::fuzz
