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
#include "comm/mpi/freight.h"
#include "comm/mpi/letters.h"
#include "comm/mpi/open_mpi.h"
#include "comm/mpi/peers.h"
#include "comm/mpi/shared_flag.h"

namespace linnet {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Rests between two looks at MPI while messages are under way, and while there are none. The former grow to
/// a ninth of the time waited so far: a message is found little later than it comes, and a long wait costs
/// the threads that compute few interruptions.
constexpr microseconds shortest_rest{10}, longest_rest{1000}, idle_rest{10000};

/// How long others have for the end of what they do when a rank fails, and a rank for its sentence about it.
constexpr milliseconds failure_limit{1000}, speech_limit{700}, farewell{300};

/// Before a rank counts as dead, its last letters are read: so many looks in a row have to find it dead.
constexpr int looks = 4;

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(bool by_silence) : by_silence_(by_silence) {
    std::promise<void> started;
    progress_ = std::thread([&] { run(started); });
    started.get_future().get();
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
    return order({true, const_cast<std::byte*>(bytes.data()), bytes.size(), to, tag, nullptr});
  }

  std::shared_ptr<Transfer::State> receive(std::span<std::byte> bytes, int from, int tag) override {
    return order({false, bytes.data(), bytes.size(), from, tag, nullptr});
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
    answered_.wait(lock, [&] { return all_heard_; });
    return speaks_;
  }

  void on_failure_say(std::string text) override {
    const std::lock_guard lock(mutex_);
    last_words_ = std::move(text);
  }

 private:
  std::shared_ptr<Transfer::State> order(Order order) {
    order.state = std::make_shared<Transfer::State>(weak_from_this());
    std::shared_ptr<Transfer::State> state = order.state;
    {
      const std::lock_guard lock(mutex_);
      if (failed_ >= 0) {
        state->finish_with(failure());
        return state;
      }
      orders_.push_back(std::move(order));
    }
    wake_.notify_one();
    return state;
  }

  RankFailure failure() const { return rank_failure(failed_, reason_, status_); }

  // What follows is done by the thread of MPI.

  void run(std::promise<void>& started) {
    begin();
    started.set_value();
    while (true) {
      const bool ordered = take_orders();
      const Clock::time_point before = Clock::now();
      // A look that takes long has copied something.
      const bool moved = freight_->poll() || Clock::now() - before > shortest_rest;
      read_letters();
      watch();
      if (failing_ ? end_failure() : end_work()) break;
      rest(ordered || moved);
    }
    const std::lock_guard lock(mutex_);
    all_heard_ = true;
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
    std::vector<Process> processes(static_cast<std::size_t>(size_));
    Process own = Process::own();
    MPI_Allgather(&own, sizeof own, MPI_BYTE, processes.data(), sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    letters_.emplace();
    freight_.emplace();
    peers_.emplace(rank_, std::move(processes), by_silence_);
    death_said_.emplace(by_silence_);
    on_abort_of_mpi([this] { end_without_mpi(); });
  }

  bool take_orders() {
    std::vector<Order> orders;
    bool failed = false;
    {
      const std::lock_guard lock(mutex_);
      orders.swap(orders_);
      failed = failed_ == rank_;
      if (failed_ >= 0) {
        // Ordered before the failure was known: they would be neither cancelled nor given up any more.
        for (const Order& order : orders) order.state->finish_with(failure());
        orders.clear();
      }
    }
    for (Order& order : orders) {
      if (order.sends) notice_broken_connections();
      freight_->begin(std::move(order));
    }
    if (failed) begin_failure();
    return !orders.empty();
  }

  /// Open MPI 4 survives a broken connection where it finds one while it reads. Where a send is the first to
  /// fail it often goes round without end later on: no send begins before this.
  void notice_broken_connections() {
    int any = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);
  }

  void write_to(int rank, News news, int about = 0, const std::string& text = {}) {
    if (!within_mpi_) notice_broken_connections();
    letters_->send(rank, news, about, text);
  }

  /// Whether the rank reads letters: one that has left waits for this rank's goodbye.
  bool reads(int other) const { return !(goodbye_ && peers_->has_left(other)) && !dead_.contains(other); }

  void tell_all(News news, int about = 0, const std::string& text = {}) {
    for (int other = 0; other < size_; ++other)
      if (other != rank_ && reads(other)) write_to(other, news, about, text);
  }

  /// Tells the others where this rank is the first to fail, as far as it knows.
  void begin_failure() {
    if (failing_) return;
    failing_ = Clock::now();
    freight_->cancel();
    if (failed_ == rank_) tell_all(News::failure, status_, reason_);
  }

  void read_letters() {
    while (const std::optional<Letters::Arrived> letter = letters_->next()) {
      peers_->heard(letter->from);
      switch (letter->news) {
        case News::heartbeat:
          break;
        case News::goodbye:
          peers_->left(letter->from);
          break;
        case News::failure:
          hear_of_failure(*letter);
          break;
        case News::heard:
          heard_.insert(letter->from);
          break;
        case News::death:
          if (!failing_ && !peers_->has_left(letter->about)) mourn(letter->about);
          break;
        case News::spoken:
          if (!failing_) std::_Exit(1);
          spoken_ = true;
          break;
      }
    }
  }

  void hear_of_failure(const Letters::Arrived& letter) {
    {
      const std::lock_guard lock(mutex_);
      if (failed_ < 0) {
        failed_ = letter.from;
        reason_ = letter.text;
        status_ = letter.about;
      } else if (failed_ == rank_ && letter.from < rank_) {
        speaks_ = false;
      }
    }
    heard_.insert(letter.from);
    // Of two that fail at the same time each hears of the other before it is answered.
    begin_failure();
    write_to(letter.from, News::heard);
  }

  void watch() {
    const Clock::time_point now = Clock::now();
    if (now - watched_ < idle_rest) return;
    watched_ = now;
    if (now - beaten_ >= Peers::beat) {
      beaten_ = now;
      for (const int other : peers_->heartbeats())
        if (reads(other) && !letters_->under_way_to(other)) write_to(other, News::heartbeat);
    }
    if (failing_) return;
    const std::vector<int> dead = peers_->dead(stop_was_requested());
    looks_ = dead.empty() ? 0 : looks_ + 1;
    if (looks_ == looks) mourn(dead.front());
  }

  /// Whether the thread is to end.
  bool end_failure() {
    const auto passed = Clock::now() - *failing_;
    std::unique_lock lock(mutex_);
    const bool own = failed_ == rank_, speaks = own && speaks_;
    if (own && !all_heard_ && (static_cast<int>(heard_.size()) == size_ - 1 || passed > failure_limit)) {
      all_heard_ = true;
      answered_.notify_all();
    }
    if (!given_up_ && (freight_->empty() || passed > failure_limit)) {
      // From here on callers free their memory. MPI, which may still know of it, is not called any more.
      given_up_ = true;
      const bool clean = freight_->empty();
      freight_->give_up(failure());
      if (!clean) {
        lock.unlock();
        if (!speaks) std::this_thread::sleep_for(speech_limit);
        return true;
      }
    }
    if (!given_up_ || !closing_ || (own && !all_heard_)) return false;
    // Launchers end all processes once one has ended with an error: the rank that prints its own comes first.
    if (speaks && !spoken_) {
      spoken_ = true;
      tell_all(News::spoken, rank_);
    }
    const bool ends = (spoken_ && !letters_->under_way()) ||
                      passed > (speaks ? failure_limit : failure_limit + speech_limit);
    // A program that has left in order does not hear of the failure.
    if (ends && goodbye_ && !own) std::_Exit(status_);
    return ends;
  }

  /// The same where no rank has failed: when all ranks have said goodbye.
  bool end_work() {
    {
      const std::lock_guard lock(mutex_);
      if (!closing_) return false;
    }
    if (!goodbye_) tell_all_goodbye();
    for (int other = 0; other < size_; ++other)
      if (other != rank_ && !peers_->has_left(other)) return false;
    if (letters_->under_way() || !freight_->empty()) return false;
    letters_->close();
    freight_->close();
    death_said_->close();
    MPI_Finalize();
    return true;
  }

  /// To those too that have left: all wait for the goodbyes of all.
  void tell_all_goodbye() {
    goodbye_ = true;
    for (int other = 0; other < size_; ++other)
      if (other != rank_) write_to(other, News::goodbye);
  }

  void rest(bool busy) {
    if (busy) {
      rest_ = shortest_rest;
      return;
    }
    std::unique_lock lock(mutex_);
    const bool idle = freight_->empty() && !closing_ && !failing_;
    const auto news = [&] {
      return !orders_.empty() || (failed_ == rank_ && !failing_) || (closing_ && idle);
    };
    wake_.wait_for(lock, idle ? idle_rest : rest_, news);
    rest_ = std::min(rest_ * 9 / 8, longest_rest);
  }

  /// Ends the process after the lowest rank that lives has said that `rank` is dead.
  [[noreturn]] void mourn(int rank) {
    dead_.insert(rank);
    tell_all(News::death, rank);
    const Clock::time_point begin = Clock::now();
    int found = 0;
    while (lowest() != rank_ && Clock::now() - begin < speech_limit) {
      while (const std::optional<Letters::Arrived> letter = letters_->next()) {
        peers_->heard(letter->from);
        if (letter->news == News::spoken) std::_Exit(1);
        if (letter->news == News::goodbye) peers_->left(letter->from);
        if (letter->news == News::death) dead_.insert(letter->about);
      }
      std::this_thread::sleep_for(idle_rest);
      // The lowest rank may have died too, or it has spoken and ended.
      const std::vector<int> dead = peers_->dead(stop_was_requested());
      found = std::ranges::count(dead, lowest()) == 0 ? 0 : found + 1;
      if (found == looks) dead_.insert(dead.begin(), dead.end());
    }
    if (lowest() == rank_) {
      speak(peers_->text(rank));
      for (const auto spoken = Clock::now(); letters_->under_way() && Clock::now() - spoken < farewell;) {
        letters_->next();
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
    std::_Exit(1);
  }

  /// The same within a call of MPI, which sends only what goes out at once: when a connection has broken.
  [[noreturn]] void end_without_mpi() {
    within_mpi_ = true;
    if (spoken_) std::_Exit(1);
    if (failing_) {
      {
        const std::lock_guard lock(mutex_);
        all_heard_ = true;
        freight_->give_up(failure());
      }
      answered_.notify_all();
      std::this_thread::sleep_for(speech_limit);
      std::_Exit(1);
    }
    for (const auto begin = Clock::now(); dead_.empty() && Clock::now() - begin < farewell;) {
      const std::vector<int> dead = peers_->dead(stop_was_requested());
      dead_.insert(dead.begin(), dead.end());
      std::this_thread::sleep_for(milliseconds(1));
    }
    if (dead_.empty())  // It is a rank on another machine, one to which messages are left.
      for (int other = 0; other < size_; ++other)
        if (freight_->under_way_to(other) || letters_->under_way_to(other)) dead_.insert(other);
    if (lowest() == rank_) {
      speak(dead_.size() == 1 ? peers_->text(*dead_.begin())
                              : fmt::format("one of the ranks {} of {}", fmt::join(dead_, ", "), size_));
    } else {
      // The rank that is to say it may not have noticed, and the launcher ends it with this one.
      if (dead_.size() == 1) tell_all(News::death, *dead_.begin());
      std::this_thread::sleep_for(speech_limit);
    }
    std::_Exit(1);
  }

  int lowest() const {
    int other = 0;
    while (other != rank_ && (dead_.contains(other) || peers_->has_left(other))) ++other;
    return other;
  }

  /// Says that `who` has died, and tells the others so: unless a lower rank has, of which they may not hear
  /// where MPI has ended it.
  void speak(const std::string& who) {
    if (!death_said_->raise()) return;
    std::string sentence = fmt::format("linnet: [ranks] {} has died", who);
    {
      const std::lock_guard lock(mutex_);
      if (!last_words_.empty()) sentence += ": " + last_words_;
    }
    sentence += "\n";
    // One call, so that nothing comes between; there is nobody to tell where it fails.
    [[maybe_unused]] const auto written = write(STDERR_FILENO, sentence.data(), sentence.size());
    spoken_ = true;
    tell_all(News::spoken, rank_);
  }

  bool by_silence_;
  int rank_ = 0, size_ = 1;
  std::thread progress_;

  std::mutex mutex_;
  std::condition_variable wake_, answered_;
  std::vector<Order> orders_;
  std::string last_words_;
  int failed_ = -1;  ///< the rank that has failed first, as far as this one knows
  std::string reason_;
  int status_ = 1;  ///< that the failed rank ends with
  bool all_heard_ = false, speaks_ = true, closing_ = false;

  // Of the thread of MPI.
  std::optional<Letters> letters_;
  std::optional<Freight> freight_;
  std::optional<Peers> peers_;
  std::optional<SharedFlag> death_said_;
  std::set<int> heard_;  ///< ranks that know of this one's failure
  std::set<int> dead_;
  std::optional<Clock::time_point> failing_;
  Clock::time_point watched_{}, beaten_{};
  microseconds rest_ = shortest_rest;
  int looks_ = 0;  ///< that have found a rank dead
  bool given_up_ = false, goodbye_ = false, within_mpi_ = false;
  bool spoken_ = false;  ///< whether the sentence about the failure or the death has been printed
};

}  // namespace

std::shared_ptr<Transport> mpi_transport(bool by_silence) {
  return std::make_shared<MpiTransport>(by_silence);
}

}  // namespace linnet
