#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/random.h"
#include "linnet/context.h"

namespace linnet {

/// Draws a synthetic handwritten digit (0 … 9), white on black, into `pixels` [size, size], size 8 … 64.
/// Strokes are curves through points of a hand-made skeleton, one of several a digit, varied in shape, slant,
/// thickness, aspect, rotation and position, all decided by (random, index) alone: the same picture on every
/// machine. Seen at another size it is the same digit.
void draw_digit(std::span<std::uint8_t> pixels, std::int64_t size, int digit, const Random& random,
                std::uint64_t index);

/// `count` digits from number `first` on: pixels [count, size, size] and labels [count], drawn at random.
/// Threaded.
void draw_digits(Context& context, std::span<std::uint8_t> pixels, std::span<std::uint8_t> labels,
                 std::int64_t size, const Random& random);

/// Writes a data set with the four file names of MNIST into a new or empty folder. Training and test digits
/// are drawn from different sequences of `seed`, the same as those of the data kind "digits".
void write_digits(const std::filesystem::path& folder, std::int64_t training, std::int64_t test,
                  std::int64_t size, std::uint64_t seed);

}  // namespace linnet
