#include "io/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "io/temporary_folder.h"
#include "support/npy.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Npy : public testing::Test {
 protected:
  NpyHeader header(const std::string& bytes) {
    const InputFile file(folder.file("a.npy", bytes));
    return read_npy_header(file, "a.npy");
  }
  std::string refusal(const std::string& bytes) {
    const std::string message = error_of([&] { header(bytes); });
    EXPECT_THAT(message, HasSubstr("a.npy"));
    return message;
  }

  TemporaryFolder folder;
};

TEST_F(Npy, ReadsHeadersOfAllVersions) {
  for (const int version : {1, 2, 3}) {
    const NpyHeader found = header(npy_file("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }",
                                            std::string(24, 'x'), version));
    EXPECT_EQ(found.kind, 'i');
    EXPECT_EQ(found.bytes, 4u);
    EXPECT_THAT(found.shape, ElementsAre(2, 3));
    EXPECT_EQ(found.data, 128u);
  }
}

TEST_F(Npy, ReadsHeadersHoweverTheyAreWritten) {
  EXPECT_THAT(header(npy_file("{'shape':(3,),'descr':'|u1','fortran_order':False}", "abc")).shape,
              ElementsAre(3));
  EXPECT_THAT(
      header(npy_file("{ 'descr' : '<f8', 'fortran_order' : True, 'shape' : (), }", "abcdefgh")).shape,
      IsEmpty());
  EXPECT_THAT(header(npy_file("{'descr': '<u2', 'fortran_order': False, 'shape': (0, 5), }", "")).shape,
              ElementsAre(0, 5));
}

TEST_F(Npy, RefusesWhatItCannotTake) {
  const auto with = [&](const std::string& descr, const std::string& order, const std::string& shape) {
    return refusal(npy_file(
        "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }", "12345678"));
  };
  EXPECT_THAT(with("'>i4'", "False", "(2,)"), AllOf(HasSubstr("little-endian"), HasSubstr("'>i4'")));
  EXPECT_THAT(with("'|O'", "False", "(2,)"), HasSubstr("'|O'"));
  EXPECT_THAT(with("'|i4'", "False", "(2,)"), HasSubstr("'|i4'"));
  EXPECT_THAT(with("'<i4x'", "False", "(2,)"), HasSubstr("'<i4x'"));
  EXPECT_THAT(with("[('a', '<i4')]", "False", "(2,)"), HasSubstr("records"));
  EXPECT_THAT(with("'<i4'", "True", "(2, 1)"), HasSubstr("Fortran"));
  EXPECT_THAT(with("'<i4'", "False", "(3,)"), AllOf(HasSubstr("12 bytes"), HasSubstr("got 8")));
  EXPECT_THAT(with("'<i4'", "False", "(1,)"), AllOf(HasSubstr("4 bytes"), HasSubstr("got 8")));
  EXPECT_THAT(with("'<i4'", "False", "(4611686018427387904, 4)"), HasSubstr("a.npy"));
  for (const char* shape : {"(-1,)", "2", "(2", "(2;3)", "(99999999999999999999,)"})
    EXPECT_THAT(with("'<i4'", "False", shape), HasSubstr("damaged")) << shape;
}

TEST_F(Npy, RefusesDamagedHeaders) {
  const std::string whole = npy_file("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", "12345678");
  for (std::size_t size = 0; size < whole.size(); ++size) refusal(whole.substr(0, size));
  EXPECT_THAT(refusal("PNG" + whole), HasSubstr("NumPy"));
  std::string other = whole;
  other[6] = 4;
  EXPECT_THAT(refusal(other), AllOf(HasSubstr("version"), HasSubstr("got 4")));
  for (const char* header : {"{}", "{'descr': '<i4'}", "{'descr': '<i4', 'descr': '<i4'}", "{'other': 1}", "",
                             "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), } x"})
    EXPECT_THAT(refusal(npy_file(header, "12345678")), HasSubstr("damaged")) << header;
}

}  // namespace
}  // namespace linnet
