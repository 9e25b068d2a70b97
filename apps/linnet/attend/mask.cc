#include "attend/mask.h"

#include "attend/inputs.h"
#include "base/fail.h"
#include "checks.h"

namespace linnet {
namespace {

std::vector<std::int64_t> read_bounds(const Safetensors& file, const std::string& path, const char* name) {
  if (!file.contains(name))
    fail("attend", "expected a tensor {} in {} for --mask intervals, got none", name, path);
  return read_whole_numbers(file, path, name, "[queries]");
}

Tensor read_visible(const Safetensors& file, const std::string& path) {
  if (!file.contains("mask"))
    fail("attend", "expected a tensor mask in {} for --mask boolean, got none", path);
  const DType type = file.dtype("mask");
  const Shape& shape = file.shape("mask");
  if (type != DType::u8 || shape.size() != 3)
    fail("attend", "expected mask in {} to be u8 [batch or 1, queries, keys], got {} {}", path, name_of(type),
         to_string(shape));
  return file.tensor("mask");
}

}  // namespace

void MaskOptions::add_to(Command& command) {
  const auto list = [&](const char* name, std::vector<std::int64_t>& values, const char* text) {
    command.add_option(name, values, text).delimiter(',').allow_extra_args(false).check(whole(0));
  };
  command.add_option("--mask", mask, "full, causal, prefix, window, intervals or boolean")
      .check(one_of({"full", "causal", "prefix", "window", "intervals", "boolean"}))
      .capture_default_str();
  list("--prefix", prefix,
       "keys of the prefix with --mask prefix, one number per batch entry or one for all");
  list("--window", window, "keys to the left and to the right with --mask window, 49,0");
  list("--key-lengths", key_lengths, "number of keys that are not padding, one per batch entry");
  list("--segments", segments, "bounds of packed sequences, 0,70,71,200; no query sees across a bound");
}

void MaskOptions::check() const {
  const auto belongs = [&](const char* option, const char* name, bool given) {
    if (given && mask != name)
      fail<UsageError>("attend", "expected --mask {} with {}, got --mask {}", name, option, mask);
    if (!given && mask == name)
      fail<UsageError>("attend", "expected {} with --mask {}, got none", option, name);
  };
  belongs("--prefix", "prefix", !prefix.empty());
  belongs("--window", "window", !window.empty());
  if (!window.empty() && window.size() != 2)
    fail<UsageError>("attend", "expected --window with two numbers, left and right, got {}", window.size());
}

FileMask read_mask(const MaskOptions& options, const Safetensors& file, const std::string& path) {
  FileMask result;
  if (options.mask == "causal") result.mask = Mask::causal();
  if (options.mask == "prefix") result.mask = Mask::prefix(options.prefix);
  if (options.mask == "window") result.mask = Mask::window(options.window[0], options.window[1]);
  if (options.mask == "intervals") {
    std::vector<std::int64_t> begin = read_bounds(file, path, "begin");
    result.mask = Mask::intervals(std::move(begin), read_bounds(file, path, "end"));
  }
  if (options.mask == "boolean") {
    result.visible = read_visible(file, path);
    result.mask = Mask::boolean(std::as_const(result.visible).view<std::uint8_t>());
  }
  if (!options.key_lengths.empty()) result.mask = result.mask.with_key_lengths(options.key_lengths);
  if (!options.segments.empty()) result.mask = result.mask.with_segments(options.segments);
  return result;
}

}  // namespace linnet
