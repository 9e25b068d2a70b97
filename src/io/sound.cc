#include "io/sound.h"

#include "base/fail.h"

#ifdef LINNET_SNDFILE
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "io/file.h"

namespace linnet {
namespace {

constexpr std::int64_t most_channels = 1024;  // libsndfile's own limit

/// A file in memory, as libsndfile writes it.
struct Memory {
  std::string bytes;
  std::size_t at = 0;
};

sf_count_t length_of(void* memory) {
  return static_cast<sf_count_t>(static_cast<Memory*>(memory)->bytes.size());
}

sf_count_t seek(sf_count_t offset, int whence, void* user) {
  Memory& memory = *static_cast<Memory*>(user);
  const sf_count_t from = whence == SEEK_SET   ? 0
                          : whence == SEEK_CUR ? static_cast<sf_count_t>(memory.at)
                                               : length_of(user);
  memory.at = static_cast<std::size_t>(from + offset);
  return from + offset;
}

sf_count_t read_back(void* to, sf_count_t count, void* user) {
  Memory& memory = *static_cast<Memory*>(user);
  const std::size_t taken = std::min(static_cast<std::size_t>(count),
                                     memory.bytes.size() - std::min(memory.at, memory.bytes.size()));
  if (taken > 0) std::memcpy(to, memory.bytes.data() + memory.at, taken);
  memory.at += taken;
  return static_cast<sf_count_t>(taken);
}

sf_count_t write(const void* from, sf_count_t count, void* user) {
  Memory& memory = *static_cast<Memory*>(user);
  const std::size_t end = memory.at + static_cast<std::size_t>(count);
  if (end > memory.bytes.size()) memory.bytes.resize(end);
  std::memcpy(memory.bytes.data() + memory.at, from, static_cast<std::size_t>(count));
  memory.at = end;
  return count;
}

sf_count_t tell(void* user) { return static_cast<sf_count_t>(static_cast<Memory*>(user)->at); }

}  // namespace

struct SoundFile::Handle {
  SNDFILE* file = nullptr;
  ~Handle() { sf_close(file); }
};

SoundFile::SoundFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_, error))
    fail("sound", "cannot read {}: {}", path_.string(), error ? error.message() : "no regular file");
  SF_INFO info{};
  SNDFILE* const file = sf_open(path_.c_str(), SFM_READ, &info);
  if (file == nullptr)
    fail("sound", "{}: expected a sound file such as WAV or FLAC, which libsndfile cannot read here: {}",
         path_.string(), sf_strerror(nullptr));
  handle_ = std::make_unique<Handle>();
  handle_->file = file;
  format_ = {info.samplerate, info.channels, info.frames};
  if (info.seekable == 0 || info.samplerate < 1 || info.channels < 1 || info.frames < 1)
    fail("sound", "{}: expected a sound with samples that can be read from any position, got {} frames",
         path_.string(), info.frames);
}

void SoundFile::read(std::int64_t frame, std::span<float> samples) {
  const auto frames = static_cast<sf_count_t>(samples.size()) / format_.channels;
  if (sf_seek(handle_->file, frame, SEEK_SET) != frame ||
      sf_readf_float(handle_->file, samples.data(), frames) != frames)
    fail("sound", "{}: expected {} frames from frame {} on, got fewer: {}", path_.string(), frames, frame,
         sf_strerror(handle_->file));
}

void write_sound(const std::filesystem::path& path, std::span<const float> samples, std::int64_t channels,
                 std::int64_t rate) {
  if (channels < 1 || channels > most_channels)
    fail<UsageError>("sound", "expected 1 to {} channels, got {}", most_channels, channels);
  if (rate < 1 || rate > std::numeric_limits<int>::max())
    fail<UsageError>("sound", "expected a rate of at least 1 frame per second, got {}", rate);
  if (samples.size() % static_cast<std::size_t>(channels) != 0)
    fail<UsageError>("sound", "expected whole frames of {} channels, got {} samples", channels,
                     samples.size());
  if (!std::ranges::all_of(samples, [](float sample) { return std::isfinite(sample); }))
    fail<UsageError>("sound", "expected samples that are finite, got others");
  SF_INFO info{};
  info.samplerate = static_cast<int>(rate);
  info.channels = static_cast<int>(channels);
  info.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  SF_VIRTUAL_IO operations{length_of, seek, read_back, write, tell};
  Memory memory;
  SNDFILE* const file = sf_open_virtual(&operations, SFM_WRITE, &info, &memory);
  if (file == nullptr) fail("sound", "cannot write {}: {}", path.string(), sf_strerror(nullptr));
  sf_command(file, SFC_SET_CLIPPING, nullptr, SF_TRUE);
  const auto frames = static_cast<sf_count_t>(samples.size()) / channels;
  const bool written = sf_writef_float(file, samples.data(), frames) == frames;
  const int closed = sf_close(file);
  if (!written || closed != 0) fail("sound", "cannot write {}: {}", path.string(), sf_error_number(closed));
  write_file_atomically(path, memory.bytes);
}

}  // namespace linnet

#else

namespace linnet {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path) {
  fail<UsageError>("sound",
                   "expected Linnet to be built with libsndfile (libsndfile1-dev) for {}, got it without",
                   path.string());
}

}  // namespace

struct SoundFile::Handle {};

SoundFile::SoundFile(std::filesystem::path path) { refuse(path); }
void SoundFile::read(std::int64_t, std::span<float>) {}

void write_sound(const std::filesystem::path& path, std::span<const float>, std::int64_t, std::int64_t) {
  refuse(path);
}

}  // namespace linnet

#endif

namespace linnet {

SoundFile::~SoundFile() = default;
SoundFile::SoundFile(SoundFile&&) noexcept = default;
SoundFile& SoundFile::operator=(SoundFile&&) noexcept = default;

}  // namespace linnet
