// A line between two machines that takes time: every frame that enters one end leaves the other one after a
// delay, in both directions. The ends are TAP devices, each in the network namespace of a process.
//   relay MILLISECONDS PROCESS DEVICE PROCESS DEVICE
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace linnet {
namespace {

using Clock = std::chrono::steady_clock;

/// More than an Ethernet frame, as the devices keep their default MTU of 1500 bytes.
constexpr std::size_t largest_frame = 2048;

int checked(int result, const std::string& operation) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), operation);
  return result;
}

/// A new device in the namespace of a process. It exists as long as its descriptor is open.
int open_device(const std::string& process, const std::string& name) {
  const std::string path = "/proc/" + process + "/ns/net";
  const int space = checked(open(path.c_str(), O_RDONLY | O_CLOEXEC), path);
  checked(setns(space, CLONE_NEWNET), "setns " + path);
  close(space);
  const int device = checked(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::copy_n(name.begin(), std::min<std::size_t>(name.size(), IFNAMSIZ - 1), request.ifr_name);
  checked(ioctl(device, TUNSETIFF, &request), "TUNSETIFF " + name);
  return device;
}

/// One direction of the line.
class Direction {
 public:
  Direction(int from, int to, Clock::duration delay) : from_(from), to_(to), delay_(delay) {}

  /// Takes the frames that wait at the entrance.
  void take() {
    std::array<char, largest_frame> frame;
    for (;;) {
      const ssize_t size = read(from_, frame.data(), frame.size());
      if (size <= 0) return;
      frames_.push_back({Clock::now() + delay_, {frame.data(), frame.data() + size}});
    }
  }

  /// Hands over the frames whose time has come. One that the device refuses is lost, as on other lines.
  void give(Clock::time_point now) {
    for (; !frames_.empty() && frames_.front().due <= now; frames_.pop_front()) {
      const std::vector<char>& bytes = frames_.front().bytes;
      [[maybe_unused]] const ssize_t written = write(to_, bytes.data(), bytes.size());
    }
  }

  Clock::time_point next() const { return frames_.empty() ? Clock::time_point::max() : frames_.front().due; }

 private:
  struct Frame {
    Clock::time_point due;
    std::vector<char> bytes;
  };
  int from_, to_;
  Clock::duration delay_;
  std::deque<Frame> frames_;
};

timespec time_until(Clock::time_point due) {
  constexpr std::chrono::nanoseconds longest = std::chrono::milliseconds(100);
  const auto left = due == Clock::time_point::max() ? longest : due - Clock::now();
  return {0, std::clamp<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(0), longest).count()};
}

[[noreturn]] void run(char** arguments) {
  // The kernel may wake a process 50 microseconds late, unless it asks for better.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  const auto delay = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double, std::milli>(std::stod(arguments[1])));
  const int one = open_device(arguments[2], arguments[3]), other = open_device(arguments[4], arguments[5]);
  std::puts("ready");
  std::fflush(stdout);
  Direction forth(one, other, delay), back(other, one, delay);
  for (;;) {
    pollfd ends[] = {{one, POLLIN, 0}, {other, POLLIN, 0}};
    const timespec timeout = time_until(std::min(forth.next(), back.next()));
    ppoll(ends, 2, &timeout, nullptr);
    forth.take();
    back.take();
    const Clock::time_point now = Clock::now();
    forth.give(now);
    back.give(now);
  }
}

}  // namespace
}  // namespace linnet

int main(int argc, char** argv) {
  try {
    if (argc != 6) throw std::runtime_error("relay: expected five arguments");
    linnet::run(argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
