#include "data/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

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

TEST(Fingerprint, CoversSeveralFilesAndTheirParts) {
  const TemporaryFolder folder;
  for (const auto& [name, bytes] : {std::pair("a1", "1234"), std::pair("a2", "567"), std::pair("b", "89")})
    folder.file(name, bytes);
  const auto of = [&](const std::string& path, const std::string& validation, const std::string& test) {
    return fingerprint_of({.kind = "text", .path = path, .validation = validation, .test = test});
  };
  const std::string a1 = folder / "a1", a2 = folder / "a2", b = folder / "b";
  EXPECT_EQ(of((folder / "a?").string() + "," + b, "", ""), (DataFingerprint{3, 9, "cbf43926"}));
  // The same bytes in the same order, but in other parts.
  const DataFingerprint all[] = {of(a1 + "," + a2 + "," + b, "", ""), of(a1 + "," + a2, b, ""),
                                 of(a1, a2 + "," + b, ""), of(a1 + "," + a2, "", b), of(a1, a2, b)};
  for (const DataFingerprint& one : all) {
    EXPECT_EQ(one.files, 3);
    EXPECT_EQ(one.bytes, 9);
    EXPECT_EQ(std::ranges::count(all, one), 1);
  }
}

TEST(Fingerprint, CoversOffsetsAndClasses) {
  const TemporaryFolder folder;
  folder.file("a.npy", "1");
  const DataOptions tokens{.kind = "tokens", .path = folder / "*.npy"};
  EXPECT_EQ(fingerprint_of(tokens).files, 1);
  folder.file("a.offsets.npy", "2");
  EXPECT_EQ(fingerprint_of(tokens).files, 2);
  EXPECT_EQ(fingerprint_of({.kind = "tokens", .path = folder / "a.npy"}), fingerprint_of(tokens));

  for (const char* name : {"one", "two"}) std::filesystem::create_directories(folder / "images" / name);
  folder.file("images/one/a.png", "1");
  folder.file("images/two/b.png", "2");
  const DataOptions images{.kind = "images", .path = folder / "images"};
  const DataFingerprint before = fingerprint_of(images);
  EXPECT_EQ(before.files, 2);
  std::filesystem::rename(folder / "images/two/b.png", folder / "images/one/b.png");
  EXPECT_EQ(fingerprint_of(images).files, 2);
  EXPECT_NE(fingerprint_of(images), before);
}

TEST(Fingerprint, CoversTargetsAndTheTokenizer) {
  const TemporaryFolder folder;
  const std::string a = folder.file("a", "1234"), b = folder.file("b", "56"), c = folder.file("c", "789");
  const DataFingerprint all[] = {
      fingerprint_of({.kind = "sound", .path = a + "," + b + "," + c}),
      fingerprint_of({.kind = "sound", .path = a + "," + b, .validation = c}),
      fingerprint_of({.kind = "sound", .path = a + "," + b, .target = c}),
      fingerprint_of({.kind = "text", .path = a + "," + b, .tokenizer = c}),
  };
  for (const DataFingerprint& one : all) {
    EXPECT_EQ(one.files, 3);
    EXPECT_EQ(one.bytes, 9);
    EXPECT_EQ(std::ranges::count(all, one), 1);
  }
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
