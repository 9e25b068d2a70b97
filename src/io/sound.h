#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace linnet {

/// Size and rate of a sound.
struct SoundFormat {
  std::int64_t rate = 0;  ///< frames per second
  std::int64_t channels = 0;
  std::int64_t frames = 0;  ///< a frame has a sample of each channel

  bool operator==(const SoundFormat&) const = default;
};

/// A sound file that libsndfile reads (WAV, FLAC, AIFF, Ogg and others), from any position on. For one thread
/// at a time.
class SoundFile {
 public:
  /// Throws Error for a file that is missing, no regular file, no sound, or empty; UsageError where Linnet
  /// was built without libsndfile.
  explicit SoundFile(std::filesystem::path path);
  ~SoundFile();
  SoundFile(SoundFile&&) noexcept;
  SoundFile& operator=(SoundFile&&) noexcept;

  const SoundFormat& format() const { return format_; }

  /// Reads the frames from `frame` on into `samples` [frames, channels]. Samples of integer files are in [−1,
  /// 1), those of floating-point files as they are. Throws Error where the file ends before, or is damaged.
  void read(std::int64_t frame, std::span<float> samples);

 private:
  struct Handle;
  std::filesystem::path path_;
  SoundFormat format_;
  std::unique_ptr<Handle> handle_;
};

/// A WAV file of 16 bits per sample that is written piece by piece, and is there once `commit` has returned.
class SoundWriter {
 public:
  /// Throws Error where the file cannot be written, as do the functions below; UsageError for no or more than
  /// 1024 channels, a rate below 1, and where Linnet was built without libsndfile.
  SoundWriter(const std::filesystem::path& path, std::int64_t channels, std::int64_t rate);
  /// Leaves everything as it was before, unless it was committed.
  ~SoundWriter();
  SoundWriter(const SoundWriter&) = delete;
  SoundWriter& operator=(const SoundWriter&) = delete;

  /// Appends `samples` [frames, channels]. Samples outside [−1, 1] are clipped. Throws UsageError for samples
  /// that are no whole frames or not finite.
  void write(std::span<const float> samples);
  void commit();

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

/// Writes such a file at once. Throws as SoundWriter does.
void write_sound(const std::filesystem::path& path, std::span<const float> samples, std::int64_t channels,
                 std::int64_t rate);

}  // namespace linnet
