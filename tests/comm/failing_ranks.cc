// A program for mpirun, whose ranks end in one of several ways: failing_ranks WAY RANK [silence]. With
// `silence` ranks are found dead by their silence alone, as on other machines. LINNET_TAGS limits the tags
// that MPI says it has.
#include <fmt/core.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "comm/mpi/mpi_transport.h"
#include "comm/mpi/start_ranks.h"
#include "comm/transport.h"

/// Stands before that of MPI, whose profiling interface has it under another name.
extern "C" int MPI_Comm_get_attr(MPI_Comm ranks, int key, void* value, int* found) {
  static int largest = 0;
  const char* tags = std::getenv("LINNET_TAGS");
  if (key != MPI_TAG_UB || tags == nullptr) return PMPI_Comm_get_attr(ranks, key, value, found);
  largest = std::atoi(tags) - 1;
  *static_cast<int**>(value) = &largest;
  *found = 1;
  return MPI_SUCCESS;
}

namespace linnet {
namespace {

std::atomic<bool> stopped = false;

void on_stop(int) {
  stopped = true;
  Communicator::stop_requested();
}

/// Steps as of a training run: some computation, then a sum over all ranks. Ends once all have been stopped.
void work(Communicator& ranks, const std::function<void(int)>& at_step) {
  std::vector<double> numbers(200000);
  for (int step = 0; step < 100000; ++step) {
    at_step(step);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ranks.sum(std::span(numbers));
    std::int64_t stop = stopped;
    ranks.sum(std::span(&stop, 1));
    if (stop > 0) return;
  }
}

void stop_and_die(std::chrono::milliseconds after) {
  const pid_t self = getpid();
  if (fork() == 0) {
    std::this_thread::sleep_for(after);
    kill(self, SIGKILL);
    std::_Exit(0);
  }
  raise(SIGSTOP);
}

void run(Communicator& ranks, const std::string& way, int victim) {
  const bool chosen = ranks.rank() == victim || victim < 0;
  if (way == "kill") {
    work(ranks, [&](int step) {
      if (chosen && step == 20) raise(SIGKILL);
    });
  } else if (way == "kill-idle") {  // while the others compute for long and call nothing
    if (chosen) raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::minutes(2));
  } else if (way == "kill-two") {  // the next rank dies long before the first one's silence is noticed
    if (chosen) raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    if (ranks.rank() == victim + 1) raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::minutes(2));
  } else if (way == "kill-full" || way == "kill-told") {
    // A rank that takes nothing any more, while messages to it queue up, or go out up to its death.
    const bool full = way == "kill-full";
    ranks.barrier();
    if (chosen) stop_and_die(std::chrono::milliseconds(full ? 2000 : 200));
    const std::vector<std::byte> bytes(full ? 32 << 10 : 64);
    std::vector<Transfer> sent;
    for (int message = 0; message < 1000; ++message) {
      sent.push_back(ranks.send(bytes, victim, 1));
      if (!full) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (Transfer& one : sent) one.wait();
    ranks.barrier();
  } else if (way == "throw" || way == "throw-usage" || way == "throw-late") {
    work(ranks, [&](int step) {
      if (chosen && step == 20 && way == "throw-usage") throw UsageError("expected another disk");
      if (chosen && step == 20) throw Error(fmt::format("rank {} has a full disk", ranks.rank()));
    });
  } else if (way == "stop") {  // every rank gets SIGTERM, at its own time
    work(ranks, [&](int step) {
      if (step == 20 + 5 * ranks.rank()) raise(SIGTERM);
    });
    fmt::print(stderr, "rank {} has stopped in order\n", ranks.rank());
  } else if (way == "finish" || way == "finish-late") {  // others work on after one has ended
    ranks.barrier();
    // Late is longer than the silence after which a rank counts as dead.
    if (!chosen) std::this_thread::sleep_for(std::chrono::milliseconds(way == "finish" ? 2000 : 6500));
    fmt::print(stderr, "rank {} has finished\n", ranks.rank());
  } else if (way == "split") {
    for (int colour : {0, 0}) ranks.split(colour);
    fmt::print(stderr, "rank {} has finished\n", ranks.rank());
  } else if (way == "throw-last") {  // after the others have ended
    ranks.barrier();
    if (!chosen) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    throw Error(fmt::format("rank {} has a full disk", ranks.rank()));
  } else {
    throw UsageError("expected another way");
  }
}

}  // namespace
}  // namespace linnet

int main(int argc, char** argv) {
  using namespace linnet;
  if (argc < 3) return 2;
  std::signal(SIGTERM, on_stop);
  const bool by_silence = argc > 3;
  const bool late = std::string(argv[1]) == "throw-late";
  if (late) std::signal(SIGTERM, SIG_DFL);
  std::unique_ptr<Communicator> ranks;
  try {
    ranks = by_silence ? communicator_of(mpi_transport(true)) : start_ranks();
    ranks->on_failure_say("the last good checkpoint is runs/one/7");
    run(*ranks, argv[1], std::atoi(argv[2]));
    return 0;
  } catch (const RankFailure& failure) {
    ranks->fail(failure.what());
    return failure.status();
  } catch (const UsageError& error) {
    if (ranks && !ranks->fail(error.what(), 2)) return 2;
    fmt::print(stderr, "linnet: {}\n", error.what());
    ranks.reset();
    // The others end first.
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    return 2;
  } catch (const std::exception& error) {
    if (!ranks->fail(error.what())) return 1;
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    fmt::print(stderr, "linnet: {}\n", error.what());
    return 1;
  }
}
