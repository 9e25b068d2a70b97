// attention.layers: a family for every layer.
#include <algorithm>
#include <charconv>

#include "attention/family.h"
#include "base/fail.h"
#include "base/names.h"

namespace linnet {
namespace {

constexpr std::int64_t most_layers = 1000;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t";
  const std::size_t begin = text.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) + 1 - begin);
}

/// Appends the layers of one entry, NAME or NAME*COUNT.
void append(std::vector<Family>& families, std::string_view entry, const std::string& list) {
  const std::size_t star = entry.find('*');
  const std::string name(trimmed(entry.substr(0, star)));
  if (name.empty())
    fail<UsageError>("model",
                     "expected names of families separated by commas in attention.layers, got \"{}\"",
                     shortened(list));
  std::int64_t count = 1;
  if (star != std::string_view::npos) {
    const std::string_view digits = trimmed(entry.substr(star + 1));
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    if (error != std::errc() || end != digits.data() + digits.size() || count < 1 || count > most_layers)
      fail<UsageError>("model",
                       "expected a number of layers from 1 to {} after {}* in attention.layers, got \"{}\"",
                       most_layers, shortened(name), shortened(digits));
  }
  families.insert(families.end(), static_cast<std::size_t>(count), find_family(name));
}

}  // namespace

std::vector<Family> layer_families(const AttentionConfig& config, std::int64_t layers) {
  if (config.layers.empty())
    return std::vector<Family>(static_cast<std::size_t>(std::max<std::int64_t>(0, layers)), config.family);
  std::vector<Family> listed;
  std::string_view rest = config.layers;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    append(listed, rest.substr(0, comma), config.layers);
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
    if (listed.size() > most_layers) break;
  }
  const auto count = static_cast<std::int64_t>(listed.size());
  if (layers % count != 0)
    fail<UsageError>(
        "model",
        "expected attention.layers to list as many families as model.layers, {}, or a divisor of "
        "that, got {} in \"{}\"",
        layers, count, shortened(config.layers));
  std::vector<Family> families;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    families.push_back(listed[static_cast<std::size_t>(layer % count)]);
  return families;
}

AttentionConfig config_of_layer(const AttentionConfig& config, Family family) {
  AttentionConfig own = config;
  own.family = family;
  own.layers.clear();
  if (!config.layers.empty() && !info_of(family).takes_decay) own.linear.decay = Decay::none;
  return own;
}

std::string families_text(const AttentionConfig& config) {
  return config.layers.empty() ? name_of(config.family) : config.layers;
}

}  // namespace linnet
