#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>

#include "base/sanitizers.h"

namespace linnet {

/// Whether a child may do all that its parent does. The thread sanitizer ends a child that starts a thread;
/// with the address sanitizer a child waits for ever if another thread of its parent was allocating at the
/// fork; both take terabytes of addresses, so that a limit on them cannot be set.
#if defined(LINNET_ADDRESS_SANITIZER) || defined(LINNET_THREAD_SANITIZER)
inline constexpr bool children_work = false;
#else
inline constexpr bool children_work = true;
#endif

/// Runs `body` in a child process: 0 where it returns true, 1 where it returns false or throws, and minus the
/// number of the signal that ended the child. SIGALRM ends one that takes two minutes.
inline int in_child(const std::function<bool()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    bool good = false;
    try {
      good = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
    }
    _exit(good ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/// Lets the process have `more` bytes of addresses.
inline bool limit_addresses(std::size_t more) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto most = static_cast<rlim_t>(pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + more);
  const rlimit limit{most, most};
  return pages > 0 && setrlimit(RLIMIT_AS, &limit) == 0;
}

}  // namespace linnet
