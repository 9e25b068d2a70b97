#include "data/fingerprint.h"

#include <gtest/gtest.h>

#include "data/mnist_files.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

TEST(Fingerprint, IsThatOfTheContentsAndNotOfTheNames) {
  const TemporaryFolder folder;
  const auto of = [&](const char* name, std::string_view bytes) {
    return fingerprint_of({.kind = "text", .path = folder.file(name, bytes).string()});
  };
  // The check value of CRC-32 ("123456789" gives cbf43926).
  EXPECT_EQ(of("a", "123456789"), (DataFingerprint{1, 9, "cbf43926"}));
  EXPECT_EQ(of("b", "123456789"), of("a", "123456789"));
  EXPECT_NE(of("b", "123456780"), of("a", "123456789"));
  EXPECT_NE(of("b", "1234567890"), of("a", "123456789"));
  const std::string large(3'000'000, 'x');
  EXPECT_EQ(of("c", large).bytes, 3'000'000);
  EXPECT_NE(of("c", large), of("d", large.substr(1) + "y"));
}

TEST(Fingerprint, CoversAllFilesOfAFolder) {
  const TemporaryFolder folder;
  const char* names[] = {mnist_training.images, mnist_training.labels, mnist_test.images, mnist_test.labels};
  for (const char* name : names) folder.file(name, "123");
  const DataOptions options{.kind = "mnist", .path = folder.path().string()};
  const DataFingerprint all = fingerprint_of(options);
  EXPECT_EQ(all.files, 4);
  EXPECT_EQ(all.bytes, 12);
  for (const char* name : names) {
    folder.file(name, "124");
    EXPECT_NE(fingerprint_of(options), all) << name;
    folder.file(name, "123");
  }
  DataOptions unlabelled = options;
  unlabelled.labels = false;
  EXPECT_EQ(fingerprint_of(unlabelled).files, 2);
}

TEST(Fingerprint, CoversTheFilesOfEveryPart) {
  const TemporaryFolder folder;
  const auto file = [&](const char* name, std::string_view bytes) {
    return folder.file(name, bytes).string();
  };
  const DataOptions options{.kind = "series",
                            .path = file("a", "1234") + "," + file("b", "56"),
                            .validation = file("c", "7"),
                            .test = file("d", "89")};
  EXPECT_EQ(fingerprint_of(options), (DataFingerprint{4, 9, "cbf43926"}));
}

TEST(Fingerprint, OfGeneratedDataIsEmptyAndAMissingFileIsAnError) {
  EXPECT_EQ(fingerprint_of({.kind = "digits"}), DataFingerprint{});
  EXPECT_EQ(fingerprint_of({.kind = "copy"}), DataFingerprint{});
  const TemporaryFolder folder;
  const std::string none = (folder / "none").string();
  EXPECT_NE(error_of([&] { fingerprint_of({.kind = "text", .path = none}); }).find(none), std::string::npos);
  EXPECT_NE(error_of([&] { fingerprint_of({.kind = "cifar10", .path = none}); }).find("data_batch_1.bin"),
            std::string::npos);
}

}  // namespace
}  // namespace linnet
