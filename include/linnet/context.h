#pragma once

#include <cstddef>
#include <memory>

#include "linnet/export.h"

namespace linnet {

/// What computes: a number of threads and the working memory of each. A session, a trainer or a caller owns a
/// context and passes it to every forward, backward and step. Any number of contexts may work at once, each
/// for one call at a time. Results do not depend on the number of threads, bit for bit (docs/numerics.md).
///
/// Threads wait for work by spinning for some tens of microseconds and then sleep, so that an idle context
/// costs other programs nothing. In a child process after `fork` a context works on the calling thread alone.
/// A context that was moved from may only be destroyed or assigned to.
class LINNET_API Context {
 public:
  /// `threads` threads, the caller's included; there may be more of them than processors. 0 stands for one
  /// thread per processor that the process may run on. Throws UsageError for a negative number or one above
  /// `most_threads`, Error where the system refuses another thread.
  explicit Context(int threads = 0);
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  static constexpr int most_threads = 1024;

  int threads() const;

  /// Bytes of working memory that all threads hold. It grows to what the largest call needs and is reused.
  std::size_t workspace_bytes() const;

  class Impl;
  Impl& impl() { return *impl_; }  ///< for the library's own modules

 private:
  std::unique_ptr<Impl> impl_;
};

/// Processors that the process may run on; at least 1.
LINNET_API int available_processors();

}  // namespace linnet
