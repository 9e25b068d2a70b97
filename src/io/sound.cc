#include "io/sound.h"

#include "base/fail.h"

#ifdef LINNET_SNDFILE
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/file.h"

namespace linnet {
namespace {

constexpr std::int64_t most_channels = 1024;  // libsndfile's own limit
constexpr sf_count_t most_wav_bytes = 0xffffffff;

/// Throws Error for a WAV file that ends before its samples do, which libsndfile reads as far as it goes.
/// Programs that write into a pipe do not know the size, and write one that no file has.
void check_whole(const std::filesystem::path& path) {
  const InputFile file(path);
  constexpr std::uint64_t header_bytes = 12, unknown = 0x7f000000;
  struct Chunk {
    char name[4];
    std::uint32_t size;
  } chunk{};
  char start[header_bytes];
  if (file.size() < sizeof start) return;
  file.read(0, std::as_writable_bytes(std::span(start)));
  if (std::string_view(start, 4) != "RIFF" || std::string_view(start + 8, 4) != "WAVE") return;
  for (std::uint64_t at = sizeof start; at + sizeof chunk <= file.size();
       at += sizeof chunk + chunk.size + chunk.size % 2) {
    file.read(at, std::as_writable_bytes(std::span(&chunk, 1)));
    if (std::string_view(chunk.name, 4) != "data") continue;
    if (const std::uint64_t left = file.size() - at - sizeof chunk; chunk.size > left && chunk.size < unknown)
      fail("sound", "{}: expected {} bytes of samples, got {}: the file has been cut", path.string(),
           chunk.size, left);
    return;
  }
}

}  // namespace

struct SoundFile::Handle {
  SNDFILE* file = nullptr;
  ~Handle() { sf_close(file); }
};

SoundFile::SoundFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_, error))
    fail("sound", "cannot read {}: {}", path_.string(), error ? error.message() : "no regular file");
  check_whole(path_);
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

struct SoundWriter::Handle {
  Handle(const std::filesystem::path& to, std::int64_t samples_per_frame)
      : path(to), channels(samples_per_frame), out(to) {}
  ~Handle() { sf_close(file); }

  std::filesystem::path path;
  std::int64_t channels;
  AtomicFile out;
  sf_count_t at = 0, end = 0;
  std::exception_ptr error;  ///< of `out`: none may pass through libsndfile
  SNDFILE* file = nullptr;

  static Handle& of(void* user) { return *static_cast<Handle*>(user); }
  static sf_count_t length(void* user) { return of(user).end; }
  static sf_count_t tell(void* user) { return of(user).at; }
  static sf_count_t seek(sf_count_t offset, int whence, void* user) {
    const sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? of(user).at : of(user).end;
    return of(user).at = from + offset;
  }
  static sf_count_t append(const void* from, sf_count_t count, void* user) {
    Handle& handle = of(user);
    try {
      handle.out.write(static_cast<std::uint64_t>(handle.at),
                       {static_cast<const char*>(from), static_cast<std::size_t>(count)});
    } catch (...) {
      if (!handle.error) handle.error = std::current_exception();
      return 0;
    }
    handle.at += count;
    handle.end = std::max(handle.end, handle.at);
    return count;
  }

  /// Throws where it is not.
  void check(bool succeeded) const {
    if (error) std::rethrow_exception(error);
    if (!succeeded) fail("sound", "cannot write {}: {}", path.string(), sf_strerror(file));
  }
};

SoundWriter::SoundWriter(const std::filesystem::path& path, std::int64_t channels, std::int64_t rate) {
  if (channels < 1 || channels > most_channels)
    fail<UsageError>("sound", "expected 1 to {} channels, got {}", most_channels, channels);
  if (rate < 1 || rate > std::numeric_limits<int>::max())
    fail<UsageError>("sound", "expected a rate of at least 1 frame per second, got {}", rate);
  handle_ = std::make_unique<Handle>(path, channels);
  SF_INFO info{};
  info.samplerate = static_cast<int>(rate);
  info.channels = static_cast<int>(channels);
  info.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  SF_VIRTUAL_IO operations{Handle::length, Handle::seek, nullptr, Handle::append, Handle::tell};
  handle_->file = sf_open_virtual(&operations, SFM_WRITE, &info, handle_.get());
  handle_->check(handle_->file != nullptr);
  sf_command(handle_->file, SFC_SET_CLIPPING, nullptr, SF_TRUE);
}

void SoundWriter::write(std::span<const float> samples) {
  if (samples.size() % static_cast<std::size_t>(handle_->channels) != 0)
    fail<UsageError>("sound", "expected whole frames of {} channels, got {} samples", handle_->channels,
                     samples.size());
  if (!std::ranges::all_of(samples, [](float sample) { return std::isfinite(sample); }))
    fail<UsageError>("sound", "expected samples that are finite, got others");
  if (handle_->end + static_cast<sf_count_t>(sizeof(std::int16_t) * samples.size()) > most_wav_bytes)
    fail("sound", "expected at most 4 GiB of samples for {}, as a WAV file can hold, got more",
         handle_->path.string());
  const auto frames = static_cast<sf_count_t>(samples.size()) / handle_->channels;
  handle_->check(sf_writef_float(handle_->file, samples.data(), frames) == frames);
}

void SoundWriter::commit() {
  const int closed = sf_close(std::exchange(handle_->file, nullptr));
  handle_->check(closed == 0);
  handle_->out.commit();
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

struct SoundWriter::Handle {};

SoundWriter::SoundWriter(const std::filesystem::path& path, std::int64_t, std::int64_t) { refuse(path); }
void SoundWriter::write(std::span<const float>) {}
void SoundWriter::commit() {}

}  // namespace linnet

#endif

namespace linnet {

SoundFile::~SoundFile() = default;
SoundFile::SoundFile(SoundFile&&) noexcept = default;
SoundFile& SoundFile::operator=(SoundFile&&) noexcept = default;
SoundWriter::~SoundWriter() = default;

void write_sound(const std::filesystem::path& path, std::span<const float> samples, std::int64_t channels,
                 std::int64_t rate) {
  SoundWriter writer(path, channels, rate);
  writer.write(samples);
  writer.commit();
}

}  // namespace linnet
