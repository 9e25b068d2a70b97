#include "data/digits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "data/digit_skeletons.h"
#include "io/temporary_folder.h"
#include "linnet/dataset.h"
#include "support/contexts.h"

namespace linnet {
namespace {

using testing::HasSubstr;

struct Digits {
  std::vector<std::uint8_t> pixels, labels;
  std::int64_t area;
  std::span<const std::uint8_t> image(std::size_t i) const {
    return std::span(pixels).subspan(i * static_cast<std::size_t>(area), static_cast<std::size_t>(area));
  }
};

Digits draw(std::size_t count, std::int64_t size, std::uint32_t stream, Context& context = any_context()) {
  Digits digits{std::vector<std::uint8_t>(count * static_cast<std::size_t>(size * size)),
                std::vector<std::uint8_t>(count), size * size};
  draw_digits(context, digits.pixels, digits.labels, size, Random(1, Draw::synthetic_data, stream));
  return digits;
}

// FNV-1a, 64 bits.
std::uint64_t hash(std::span<const std::uint8_t> bytes) {
  std::uint64_t result = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : bytes) result = (result ^ byte) * 0x100000001b3u;
  return result;
}

TEST(Digits, AreTheSameOnEveryMachine) {
  EXPECT_EQ(hash(draw(200, 16, 0).pixels), 12968556786692824926u);
  EXPECT_EQ(hash(draw(200, 28, 1).pixels), 4038568887759363315u);
}

TEST(Digits, DoNotDependOnTheThreads) {
  Context single(1), several(3);
  const Digits one = draw(1000, 16, 0, single), three = draw(1000, 16, 0, several);
  EXPECT_EQ(one.pixels, three.pixels);
  EXPECT_EQ(one.labels, three.labels);
}

TEST(Digits, LabelsAreAboutEvenlySpread) {
  std::array<int, 10> counts{};
  for (const std::uint8_t label : draw(5000, 8, 0).labels) ++counts[label];
  for (const int count : counts) EXPECT_NEAR(count, 500, 110);
}

TEST(Digits, AreWhiteOnBlackWithEmptyCorners) {
  for (const std::int64_t size : {8, 16, 28, 64}) {
    const Digits digits = draw(500, size, 0);
    const std::size_t last = static_cast<std::size_t>(digits.area - 1),
                      row = static_cast<std::size_t>(size - 1);
    for (std::size_t i = 0; i < 500; ++i) {
      const auto image = digits.image(i);
      EXPECT_GT(*std::ranges::max_element(image), size < 16 ? 80 : 150) << i;
      const int ink = std::accumulate(image.begin(), image.end(), 0);
      EXPECT_LT(ink, digits.area * 255 * 2 / 5) << i;
      EXPECT_GT(ink, digits.area * 255 / 50) << i;
      for (const std::size_t corner : {std::size_t{0}, row, last - row, last})
        EXPECT_LE(image[corner], size < 16 ? 40 : 0) << i;
    }
  }
}

double distance(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  int sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

TEST(Digits, AreVaried) {
  // No two of a class are nearly the same picture.
  const Digits digits = draw(400, 16, 0);
  for (std::size_t i = 0; i < 400; ++i)
    for (std::size_t j = 0; j < i; ++j)
      ASSERT_GT(distance(digits.image(i), digits.image(j)), 256 * 64) << i << ' ' << j;
}

TEST(Digits, HeldOutOnesAreRecognisedByTheirNearestNeighbour) {
  const Digits known = draw(3000, 16, 0), unknown = draw(500, 16, 1);
  int right = 0;
  std::array<int, 10> wrong{};
  for (std::size_t i = 0; i < 500; ++i) {
    std::size_t nearest = 0;
    double least = 1e300;
    for (std::size_t j = 0; j < 3000; ++j) {
      const double d = distance(unknown.image(i), known.image(j));
      if (d < least) {
        least = d;
        nearest = j;
      }
    }
    const bool same = known.labels[nearest] == unknown.labels[i];
    right += same;
    wrong[unknown.labels[i]] += !same;
  }
  EXPECT_GT(right, 475) << testing::PrintToString(wrong);
  EXPECT_THAT(wrong, testing::Each(testing::Le(10)));
}

TEST(Digits, ScaledDownTheyAreTheSameDigits) {
  // The picture of twice the size, averaged, is near to that of half the size.
  const Digits large = draw(100, 32, 0), small = draw(100, 16, 0);
  for (std::size_t i = 0; i < 100; ++i) {
    double difference = 0, ink = 0;
    for (std::size_t y = 0; y < 16; ++y) {
      for (std::size_t x = 0; x < 16; ++x) {
        const auto image = large.image(i);
        const std::size_t at = 64 * y + 2 * x;
        const double mean = (image[at] + image[at + 1] + image[at + 32] + image[at + 33]) / 4.0;
        difference += std::abs(mean - small.image(i)[16 * y + x]);
        ink += mean;
      }
    }
    EXPECT_LT(difference, 0.3 * ink) << i;
  }
}

TEST(Skeletons, NameTheirPointsAndStayInside) {
  for (int digit = 0; digit < 10; ++digit) {
    ASSERT_GE(skeletons_of(digit).size(), 2u);
    for (const Skeleton& skeleton : skeletons_of(digit)) {
      std::vector<bool> used(skeleton.points.size());
      for (const std::vector<int>& stroke : skeleton.strokes) {
        ASSERT_GE(stroke.size(), 2u);
        for (const int point : stroke) {
          ASSERT_TRUE(point >= 0 && point < static_cast<int>(used.size()));
          used[static_cast<std::size_t>(point)] = true;
        }
      }
      EXPECT_THAT(used, testing::Each(true)) << digit;
      for (const Point& point : skeleton.points)
        EXPECT_TRUE(point.x >= 0 && point.x <= 1 && point.y >= 0 && point.y <= 1) << digit;
    }
  }
}

TEST(Digits, FilesHoldWhatTheDataSetGives) {
  const TemporaryFolder folder;
  write_digits(folder / "digits", 30, 3, 16, 1);
  const Datasets files = open_datasets({.kind = "mnist", .path = folder / "digits", .size = 16, .levels = 8});
  const Datasets drawn = open_datasets({.kind = "digits", .size = 16, .levels = 8, .examples = 30});
  for (const auto& [a, b] : {std::pair(files.training.get(), drawn.training.get()),
                             std::pair(files.validation.get(), drawn.validation.get())}) {
    ASSERT_EQ(a->size(), b->size());
    EXPECT_EQ(a->classes(), b->classes());
    for (std::int64_t i = 0; i < a->size(); ++i) {
      std::vector<std::int32_t> x(256), y(256), targets(256);
      EXPECT_EQ(a->read(i, x, targets), b->read(i, y, targets));
      EXPECT_EQ(x, y);
      EXPECT_LT(*std::ranges::max_element(x), 8);
    }
  }
}

TEST(Digits, AreNotWrittenOverSomething) {
  const TemporaryFolder folder;
  folder.file("precious", "x");
  EXPECT_THAT(error_of([&] { write_digits(folder.path(), 3, 1, 16, 1); }), HasSubstr("new or empty"));
  EXPECT_THAT(error_of([&] { write_digits(folder / "precious", 3, 1, 16, 1); }), HasSubstr("precious"));
  EXPECT_THROW(write_digits(folder / "new", 0, 1, 16, 1), UsageError);
  EXPECT_THROW(write_digits(folder / "new", 1, 1, 4, 1), UsageError);
  EXPECT_EQ(folder.entries(), 1);
}

}  // namespace
}  // namespace linnet
