#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
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

}  // namespace linnet
