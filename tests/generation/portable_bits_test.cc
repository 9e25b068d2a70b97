// A session's tokens and states have the same bits on every processor with the same instruction set: a stream
// that is saved on one continues on another.
#include "support/portable_bits.h"

#include "support/sessions.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 171;

/// The numbers of a saved stream: what stands before its checksum, without the header, which depends on the
/// version of the configuration.
std::span<const std::byte> numbers_of(const std::vector<std::byte>& saved, std::size_t state_bytes) {
  return std::span(saved).last(state_bytes + sizeof(std::uint64_t)).first(state_bytes);
}

/// 40 tokens of three streams, one of which has a prompt, and their states.
BitHash session_bits(const ModelConfig& config, const SamplingOptions& sampling) {
  const auto model = random_model(config, seed);
  Session session(model, 3);
  for (std::int64_t stream = 0; stream < 3; ++stream)
    session.begin(stream, config.classes > 0 ? stream : -1, sampling);
  session.prefill(1, random_tokens(140, config.vocabulary, seed));
  BitHash bits;
  std::vector<std::int32_t> tokens(3);
  for (int t = 0; t < 40; ++t) {
    session.step(tokens);
    bits.add(tokens);
  }
  for (std::int64_t stream = 0; stream < 3; ++stream)
    bits.add(numbers_of(session.save(stream), session.state_bytes(stream)));
  return bits;
}

TEST(PortableBits, GreedyStreams) {
  const std::vector<ModelConfig> configs = session_configs();
  expect_bits(describe(configs[0]), session_bits(configs[0], greedy()),
              {0xff3c90b0a5dc6ab8, 0xe482cea026ce921d, 0x7fc9ded3fa55b1de, 0x5d5d651b95716598});
  expect_bits(describe(configs[1]), session_bits(configs[1], greedy()),
              {0x5d893212b270351f, 0x90b8f11c1a081108, 0xf2901b5f667a0342, 0x49466c3728d1f809});
  expect_bits(describe(configs[2]), session_bits(configs[2], greedy()),
              {0xe445267ea702a3ec, 0x16aba5d99d6446e6, 0xbf3df77930141b33, 0xa69cb23e4f083e31});
  expect_bits(describe(configs[3]), session_bits(configs[3], greedy()),
              {0x85eeb7f6fcc94dee, 0x2d2db706b2f1fd97, 0x853e46b4d764e616, 0xcf4452714b1f75a2});
}

TEST(PortableBits, DrawnStreams) {
  SamplingOptions nucleus = seeded(3);
  nucleus.temperature = 0.8;
  nucleus.top_p = 0.9;
  const std::vector<ModelConfig> configs = session_configs();
  expect_bits("categorical", session_bits(configs[0], nucleus),
              {0x005baf1a86daaa9f, 0x7dff2f0bfb85d2d9, 0xde733156d869ed3a, 0x81052397f43da1ff});
  expect_bits("logistics", session_bits(configs[1], seeded(4)),
              {0xb3c84c579016f569, 0x2c12e8fc93465bd0, 0xc71e0c9ea6753f17, 0xc7555eb4881c7a0a});
}

}  // namespace
}  // namespace linnet
