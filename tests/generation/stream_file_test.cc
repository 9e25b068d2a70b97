#include "generation/stream_file.h"

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/temporary_folder.h"
#include "support/little_endian.h"
#include "support/sessions.h"

namespace linnet {
namespace {

const std::vector<SavedStream> streams = {
    {7, {3, 1, 4}, {std::byte{1}, std::byte{255}}}, {0, {}, {}}, {1 << 20, {}, {std::byte{9}}}};

TEST(StreamFile, GivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  write_streams(folder / "states", streams);
  const std::vector<SavedStream> read = read_streams(folder / "states");
  ASSERT_EQ(read.size(), streams.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].left, streams[i].left);
    EXPECT_EQ(read[i].tokens, streams[i].tokens);
    EXPECT_EQ(read[i].state, streams[i].state);
  }
}

TEST(StreamFile, ContinuesSessionsBitForBit) {
  const TemporaryFolder folder;
  for (const ModelConfig& config : session_configs()) {
    SCOPED_TRACE(describe(config));
    const auto model = Model::random(config, 5);
    Session session(model, 2);
    draw(session, 0, 20);
    draw(session, 1, 31);
    write_streams(folder / "states",
                  std::vector<SavedStream>{{0, {}, session.save(0)}, {0, {}, session.save(1)}});
    Session other(model, 2);
    const std::vector<SavedStream> read = read_streams(folder / "states");
    for (std::int64_t i = 0; i < 2; ++i) {
      other.restore(i, read[static_cast<std::size_t>(i)].state);
      EXPECT_EQ(draw(other, i, 30), draw(session, i, 30));
    }
  }
}

TEST(StreamFile, EveryDamageIsNoticedByName) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "states";
  write_streams(path, streams);
  const std::string good = read_file(path);
  const auto refuses = [&](const std::string& bytes) {
    folder.file("states", bytes);
    const std::string error = error_of([&] { read_streams(path); });
    EXPECT_NE(error.find(path.string()), std::string::npos) << error;
  };
  for (std::size_t at = 0; at < good.size(); ++at) {
    SCOPED_TRACE(at);
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    refuses(damaged);
    refuses(good.substr(0, at));
  }
  refuses(good + '\0');
  for (const std::int64_t left : {std::int64_t{-1}, (std::int64_t{1} << 48) + 1}) {
    write_streams(path, std::vector<SavedStream>{{left, {}, {}}});
    refuses(read_file(path));
  }
  write_streams(path, {});
  refuses(read_file(path));
}

// The bytes of docs/format.md.
TEST(StreamFile, HasTheDocumentedBytes) {
  const TemporaryFolder folder;
  write_streams(folder / "states", streams);
  LittleEndian expected;
  expected.text("LINNETSS").add<std::uint32_t>(1).add<std::uint64_t>(3);
  expected.add<std::int64_t>(7).add<std::uint64_t>(3);
  expected.add<std::int32_t>(3).add<std::int32_t>(1).add<std::int32_t>(4);
  expected.add<std::uint64_t>(2).text("\x01\xff");
  expected.add<std::int64_t>(0).add<std::uint64_t>(0).add<std::uint64_t>(0);
  expected.add<std::int64_t>(1 << 20).add<std::uint64_t>(0).add<std::uint64_t>(1).text("\x09");
  EXPECT_EQ(read_file(folder / "states"), expected.add_crc32().string());
}

}  // namespace
}  // namespace linnet
