#include "comm/mpi/mpi_transport.h"

#include <fmt/ranges.h>
#include <mpi.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/fail.h"
#include "comm/mpi/control_channel.h"
#include "comm/mpi/open_mpi.h"
#include "comm/mpi/peers.h"
#include "comm/mpi/pending_transfers.h"
#include "comm/mpi/shared_flag.h"

namespace linnet {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Rests between two calls of MPI while messages are under way, and while there are none. The former grow to
/// a ninth of the time waited so far: a message is found little later than it comes, and a long wait costs
/// the threads that compute few interruptions.
constexpr microseconds shortest_rest{10}, longest_rest{1000}, idle_rest{10000};

/// How long others have for the end of what they do when a rank fails, a rank for its sentence about it, and
/// its last messages for their way. A rank that has spoken ends after the others have read it: what they have
/// not read is lost where they write first to the connection that it closes.
constexpr milliseconds failure_limit{1000}, report_limit{700}, leaving_limit{300}, reading_limit{100};

/// Before a rank counts as dead, its last messages are read: so many checks in a row have to find it dead.
constexpr int confirmations = 4;

/// Ranks that a rank waits for, one after another, to say which one has died.
constexpr int most_speakers = 8;

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(bool by_silence) : by_silence_(by_silence) {
    std::promise<void> started;
    progress_ = std::thread([&] { run(started); });
    try {
      started.get_future().get();
    } catch (...) {
      progress_.join();
      throw;
    }
  }

  ~MpiTransport() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_one();
    progress_.join();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::shared_ptr<Transfer::State> send(std::span<const std::byte> bytes, int to, int tag) override {
    return enqueue({true, const_cast<std::byte*>(bytes.data()), bytes.size(), to, tag, nullptr});
  }

  std::shared_ptr<Transfer::State> receive(std::span<std::byte> bytes, int from, int tag) override {
    return enqueue({false, bytes.data(), bytes.size(), from, tag, nullptr});
  }

  bool fail(const std::string& message, int status) noexcept override {
    std::unique_lock lock(mutex_);
    if (failed_ < 0) {
      failed_ = rank_;
      reason_ = message;
      status_ = status;
      wake_.notify_one();
    }
    if (failed_ != rank_) return false;
    answered_.wait(lock, [&] { return all_acknowledged_; });
    return reports_;
  }

  void on_failure_say(std::string text) override {
    const std::lock_guard lock(mutex_);
    failure_note_ = std::move(text);
  }

 private:
  std::shared_ptr<Transfer::State> enqueue(TransferRequest request) {
    request.state = std::make_shared<Transfer::State>(weak_from_this());
    std::shared_ptr<Transfer::State> state = request.state;
    {
      const std::lock_guard lock(mutex_);
      if (failed_ >= 0) {
        state->finish_with(failure());
        return state;
      }
      requests_.push_back(std::move(request));
    }
    wake_.notify_one();
    return state;
  }

  RankFailure failure() const { return rank_failure(failed_, reason_, status_); }

  // What follows is done by the thread of MPI.

  void run(std::promise<void>& started) {
    try {
      begin();
    } catch (...) {
      return started.set_exception(std::current_exception());
    }
    started.set_value();
    while (true) {
      const bool begun = begin_requests();
      const Clock::time_point before = Clock::now();
      // A look that takes long has copied something.
      const bool moved = transfers_->poll() || Clock::now() - before > shortest_rest;
      read_control_messages();
      watch();
      if (failing_ ? end_failure() : end_work()) break;
      rest(begun || moved);
    }
    const std::lock_guard lock(mutex_);
    all_acknowledged_ = true;
    answered_.notify_all();
  }

  void begin() {
    // A rank that has died is noticed otherwise than by the signal of a write to it, which ends the process.
    sigset_t broken_pipe;
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
    // The kernel may wake a thread 50 microseconds late, unless it asks for better.
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    // Containers often forbid reading another process's memory. Open MPI finds out with a warning.
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    // Nor is it worth a warning that a machine has no InfiniBand.
    setenv("OMPI_MCA_btl_base_warn_component_unused", "0", 0);
    // Over TCP a large message that is put as a whole holds up all others, heartbeats too: on a slow network
    // a rank that sends would count as dead. Fragments take turns with other messages.
    setenv("OMPI_MCA_btl_tcp_flags", "send,inplace,need-ack,need-csum", 0);
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
    print_help_messages_here();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    divide_tags();
    std::vector<Process> processes(static_cast<std::size_t>(size_));
    Process own = Process::own();
    MPI_Allgather(&own, sizeof own, MPI_BYTE, processes.data(), sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    control_.emplace();
    transfers_.emplace();
    peers_.emplace(rank_, std::move(processes), by_silence_);
    death_said_.emplace(by_silence_);
    on_abort_of_mpi([this] { end_without_mpi(); });
  }

  /// Tags of MPI have at least 15 bits. Those of Open MPI have 31, over UCX 23.
  void divide_tags() {
    constexpr int fewest = 2;  // all ranks, and those that divide sequences
    int known = 0, *largest = nullptr;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &known);
    const std::int64_t tags = known ? std::int64_t{*largest} + 1 : 1 << 15;
    most_communicators = static_cast<int>(std::min<std::int64_t>(tags >> tag_bits, most_communicators));
    if (most_communicators >= fewest) return;
    MPI_Finalize();
    linnet::fail<UsageError>("ranks", "expected an MPI with {} tags (MPI_TAG_UB), got one with {}",
                             fewest << tag_bits, tags);
  }

  bool begin_requests() {
    std::vector<TransferRequest> requests;
    bool failed = false;
    {
      const std::lock_guard lock(mutex_);
      requests.swap(requests_);
      failed = failed_ == rank_;
      if (failed_ >= 0) {
        // Requested before the failure was known: they would be neither cancelled nor abandoned any more.
        for (const TransferRequest& request : requests) request.state->finish_with(failure());
        requests.clear();
      }
    }
    for (TransferRequest& request : requests) {
      if (request.sends) notice_broken_connections();
      transfers_->begin(std::move(request));
    }
    if (failed) begin_failure();
    return !requests.empty();
  }

  /// Open MPI 4 survives a broken connection where it finds one while it reads. Where a send is the first to
  /// fail it often goes round without end later on: no send begins before this.
  void notice_broken_connections() {
    int any = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);
  }

  void send_to(int rank, Notice notice, int about = 0, const std::string& text = {}) {
    if (!within_mpi_) notice_broken_connections();
    control_->send(rank, notice, about, text);
  }

  /// Whether the rank reads control messages: one that has left waits until this rank leaves too.
  bool reads(int other) const {
    return !(leaving_ && peers_->has_left(other)) && !dead_.contains(other) && !suspects_.contains(other);
  }

  void tell_all(Notice notice, int about = 0, const std::string& text = {}) {
    for (int other = 0; other < size_; ++other)
      if (other != rank_ && reads(other)) send_to(other, notice, about, text);
  }

  /// Tells the others where this rank is the first to fail, as far as it knows.
  void begin_failure() {
    if (failing_) return;
    failing_ = Clock::now();
    transfers_->cancel();
    if (failed_ == rank_) tell_all(Notice::failure, status_, reason_);
  }

  void read_control_messages() {
    while (const std::optional<ControlMessage> message = control_->next()) {
      peers_->heard(message->from);
      switch (message->notice) {
        case Notice::heartbeat:
          break;
        case Notice::leaving:
          peers_->left(message->from);
          break;
        case Notice::failure:
          receive_failure(*message);
          break;
        case Notice::acknowledged:
          acknowledged_.insert(message->from);
          break;
        case Notice::death:
          if (!failing_ && !peers_->has_left(message->about)) end_after_death_of(message->about);
          break;
        case Notice::reported:
          if (!failing_) std::_Exit(1);
          reported_ = true;
          break;
      }
    }
  }

  void receive_failure(const ControlMessage& message) {
    {
      const std::lock_guard lock(mutex_);
      if (failed_ < 0) {
        failed_ = message.from;
        reason_ = message.text;
        status_ = message.about;
      } else if (failed_ == rank_ && message.from < rank_) {
        reports_ = false;
      }
    }
    acknowledged_.insert(message.from);
    // Of two that fail at the same time each hears of the other before it is answered.
    begin_failure();
    send_to(message.from, Notice::acknowledged);
  }

  void watch() {
    const Clock::time_point now = Clock::now();
    if (now - last_watch_ < idle_rest) return;
    last_watch_ = now;
    send_heartbeats();
    if (failing_) return;
    const std::vector<int> dead = peers_->dead(stop_was_requested());
    found_dead_ = dead.empty() ? 0 : found_dead_ + 1;
    if (found_dead_ == confirmations) end_after_death_of(dead.front());
  }

  void send_heartbeats() {
    const Clock::time_point now = Clock::now();
    if (now - last_heartbeat_ < Peers::heartbeat_interval) return;
    last_heartbeat_ = now;
    for (const int other : peers_->heartbeats())
      if (reads(other) && (within_mpi_ || !control_->pending_to(other))) send_to(other, Notice::heartbeat);
  }

  /// Whether the thread is to end.
  bool end_failure() {
    const auto passed = Clock::now() - *failing_;
    std::unique_lock lock(mutex_);
    const bool own = failed_ == rank_, reports = own && reports_;
    if (own && !all_acknowledged_ &&
        (static_cast<int>(acknowledged_.size()) == size_ - 1 || passed > failure_limit)) {
      all_acknowledged_ = true;
      answered_.notify_all();
    }
    if (!abandoned_ && (transfers_->empty() || passed > failure_limit)) {
      // From here on callers free their memory. MPI, which may still know of it, is not called any more.
      abandoned_ = true;
      const bool clean = transfers_->empty();
      transfers_->abandon_all(failure());
      if (!clean) {
        lock.unlock();
        if (!reports) std::this_thread::sleep_for(report_limit);
        return true;
      }
    }
    if (!abandoned_ || !closing_ || (own && !all_acknowledged_)) return false;
    // Launchers end all processes once one has ended with an error: the rank that prints its own comes first.
    if (reports && !reported_) {
      reported_ = true;
      tell_all(Notice::reported, rank_);
    }
    const bool ends = (reported_ && !control_->pending()) ||
                      passed > (reports ? failure_limit : failure_limit + report_limit);
    // A program that has left in order does not hear of the failure.
    if (ends && leaving_ && !own) std::_Exit(status_);
    return ends;
  }

  /// The same where no rank has failed: when all ranks are leaving.
  bool end_work() {
    {
      const std::lock_guard lock(mutex_);
      if (!closing_) return false;
    }
    if (!leaving_) tell_all_leaving();
    for (int other = 0; other < size_; ++other)
      if (other != rank_ && !peers_->has_left(other)) return false;
    if (control_->pending() || !transfers_->empty()) return false;
    control_->close();
    transfers_->close();
    death_said_->close();
    MPI_Finalize();
    return true;
  }

  /// To those too that have left: all wait for the notices of all.
  void tell_all_leaving() {
    leaving_ = true;
    for (int other = 0; other < size_; ++other)
      if (other != rank_) send_to(other, Notice::leaving);
  }

  void rest(bool busy) {
    if (busy) {
      rest_ = shortest_rest;
      return;
    }
    std::unique_lock lock(mutex_);
    const bool idle = transfers_->empty() && !closing_ && !failing_;
    const auto ready = [&] {
      return !requests_.empty() || (failed_ == rank_ && !failing_) || (closing_ && idle);
    };
    wake_.wait_for(lock, idle ? idle_rest : rest_, ready);
    rest_ = std::min(rest_ * 9 / 8, longest_rest);
  }

  /// Ends the process after the lowest rank that lives has reported that `rank` is dead. One that does not in
  /// time leaves it to the next one: it may be dead without being found dead yet.
  [[noreturn]] void end_after_death_of(int rank) {
    dead_.insert(rank);
    tell_all(Notice::death, rank);
    Clock::time_point begin = Clock::now();
    int least = 0, found = 0, silent = 0;
    while (true) {
      while (const std::optional<ControlMessage> message = control_->next()) {
        peers_->heard(message->from);
        if (message->notice == Notice::reported) std::_Exit(1);
        if (message->notice == Notice::leaving) peers_->left(message->from);
        if (message->notice == Notice::death) dead_.insert(message->about);
      }
      const int speaker = lowest(least);
      if (speaker == rank_) break;
      std::this_thread::sleep_for(idle_rest);
      send_heartbeats();
      // It may have died too, or it has reported it and ended.
      const std::vector<int> dead = peers_->dead(stop_was_requested());
      found = std::ranges::count(dead, speaker) == 0 ? 0 : found + 1;
      if (found == confirmations) dead_.insert(dead.begin(), dead.end());
      if (Clock::now() - begin < report_limit) continue;
      if (++silent == most_speakers) std::_Exit(1);
      least = speaker + 1;
      begin = Clock::now();
    }
    report_death(peers_->text(rank));
    for (const auto reported = Clock::now();
         control_->pending() && Clock::now() - reported < leaving_limit;) {
      control_->next();
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::this_thread::sleep_for(reading_limit);
    std::_Exit(1);
  }

  /// The same within a call of MPI, which sends only what goes out at once: when a connection has broken.
  [[noreturn]] void end_without_mpi() {
    within_mpi_ = true;
    if (reported_) std::_Exit(1);
    if (failing_) {
      {
        const std::lock_guard lock(mutex_);
        all_acknowledged_ = true;
        transfers_->abandon_all(failure());
      }
      answered_.notify_all();
      std::this_thread::sleep_for(report_limit);
      std::_Exit(1);
    }
    suspect_by_broken_connection();  // before the wait, in which nobody is heard
    for (const auto begin = Clock::now(); dead_.empty() && Clock::now() - begin < leaving_limit;) {
      const std::vector<int> dead = peers_->dead(stop_was_requested());
      dead_.insert(dead.begin(), dead.end());
      std::this_thread::sleep_for(milliseconds(1));
      send_heartbeats();
    }
    if (dead_.empty()) dead_ = suspects_;  // one on another machine
    suspects_.clear();
    if (lowest() == rank_) {
      report_death(dead_.size() == 1
                       ? peers_->text(*dead_.begin())
                       : fmt::format("one of the ranks {} of {}", fmt::join(dead_, ", "), size_));
      std::this_thread::sleep_for(reading_limit);
    } else {
      // The rank that is to say it may not have noticed, and the launcher ends it with this one.
      if (dead_.size() == 1) tell_all(Notice::death, *dead_.begin());
      std::this_thread::sleep_for(report_limit);
    }
    std::_Exit(1);
  }

  /// Of the ranks to which messages are left one has closed its connection.
  void suspect_by_broken_connection() {
    std::vector<int> left;
    for (int other = 0; other < size_; ++other)
      if (transfers_->pending_to(other) || control_->pending_to(other)) left.push_back(other);
    const std::vector<int> suspects = peers_->suspects(left);
    suspects_.insert(suspects.begin(), suspects.end());
  }

  /// The lowest rank from `least` on that lives, as far as this one knows; it is not above this one.
  int lowest(int least = 0) const {
    int other = least;
    while (other != rank_ && (dead_.contains(other) || peers_->has_left(other))) ++other;
    return other;
  }

  /// Reports that `who` has died, and tells the others so: unless a lower rank has, of which they may not
  /// hear where MPI has ended it.
  void report_death(const std::string& who) {
    if (!death_said_->raise()) return;
    std::string sentence = fmt::format("linnet: [ranks] {} has died", who);
    {
      const std::lock_guard lock(mutex_);
      if (!failure_note_.empty()) sentence += ": " + failure_note_;
    }
    sentence += "\n";
    // One call, so that nothing comes between; there is nobody to tell where it fails.
    [[maybe_unused]] const auto written = write(STDERR_FILENO, sentence.data(), sentence.size());
    reported_ = true;
    tell_all(Notice::reported, rank_);
  }

  bool by_silence_;
  int rank_ = 0, size_ = 1;
  std::thread progress_;

  std::mutex mutex_;
  std::condition_variable wake_, answered_;
  std::vector<TransferRequest> requests_;
  std::string failure_note_;
  int failed_ = -1;  ///< the rank that has failed first, as far as this one knows
  std::string reason_;
  int status_ = 1;  ///< that the failed rank ends with
  bool all_acknowledged_ = false, reports_ = true, closing_ = false;

  // Of the thread of MPI.
  std::optional<ControlChannel> control_;
  std::optional<PendingTransfers> transfers_;
  std::optional<Peers> peers_;
  std::optional<SharedFlag> death_said_;
  std::set<int> acknowledged_;  ///< ranks that know of this one's failure
  std::set<int> dead_;
  std::set<int> suspects_;  ///< one of which has closed its connection
  std::optional<Clock::time_point> failing_;
  Clock::time_point last_watch_{}, last_heartbeat_{};
  microseconds rest_ = shortest_rest;
  int found_dead_ = 0;  ///< checks in a row that have found a rank dead
  bool abandoned_ = false, leaving_ = false, within_mpi_ = false;
  bool reported_ = false;  ///< whether the sentence about the failure or the death has been printed
};

}  // namespace

std::shared_ptr<Transport> mpi_transport(bool by_silence) {
  return std::make_shared<MpiTransport>(by_silence);
}

}  // namespace linnet
