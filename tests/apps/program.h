#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "io/json.h"

namespace linnet {

using Strings = std::vector<std::string>;

/// How a run of the program ended, and what it printed.
struct Ended {
  int status = -1;  ///< exit status, −1 where a signal ended it
  int signal = 0;   ///< that ended it; SIGKILL also where the time limit did
  std::string out, err;
  std::int64_t peak_bytes = 0;  ///< the most memory that it held
};

/// The program `linnet`, running. Its output goes to files without names, so that it never waits for a
/// reader.
class Program {
 public:
  struct Limits {
    std::optional<rlim_t> file_bytes = {};  ///< a write beyond it fails, as on a full disk
    std::chrono::seconds time{600};         ///< against hanging alone: a busy machine is slow
    std::string folder = {};                ///< to run in; that of the test by default
    std::string out = {}, err = {};         ///< where output goes instead of being kept
    std::string in = {};                    ///< the file that is standard input; none by default
    Strings launcher = {};                  ///< a program with arguments that starts this one
  };

  explicit Program(const Strings& arguments) : Program(arguments, Limits{}) {}

  Program(const Strings& arguments, const Limits& limits)
      : out_(std::tmpfile()), err_(std::tmpfile()), end_(std::chrono::steady_clock::now() + limits.time) {
    Strings words = limits.launcher;
    words.emplace_back(LINNET_PROGRAM);
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    process_ = fork();
    if (process_ != 0) return;
    // Only what is safe between fork and exec.
    if (!limits.folder.empty() && chdir(limits.folder.c_str()) != 0) _exit(126);
    dup2(open(limits.in.empty() ? "/dev/null" : limits.in.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(limits.out.empty() ? fileno(out_) : open(limits.out.c_str(), O_WRONLY), STDOUT_FILENO);
    dup2(limits.err.empty() ? fileno(err_) : open(limits.err.c_str(), O_WRONLY), STDERR_FILENO);
    if (limits.file_bytes) {
      const rlimit limit{*limits.file_bytes, *limits.file_bytes};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    execv(pointers[0], pointers.data());
    _exit(127);
  }

  ~Program() {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    std::fclose(out_);
    std::fclose(err_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void send(int signal) const { kill(process_, signal); }

  /// Its number, until it has ended.
  pid_t process() const { return process_; }

  /// Whether it runs no more; `wait` still has to be called.
  bool has_ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == process_;
  }

  /// Waits for its end, or ends it after the time limit.
  Ended wait() {
    int raw = 0;
    rusage used = {};
    while (wait4(process_, &raw, WNOHANG, &used) == 0) {
      if (std::chrono::steady_clock::now() > end_) send(SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    process_ = 0;
    Ended ended;
    if (WIFEXITED(raw)) ended.status = WEXITSTATUS(raw);
    if (WIFSIGNALED(raw)) ended.signal = WTERMSIG(raw);
    ended.peak_bytes = std::int64_t{1024} * used.ru_maxrss;
    ended.out = contents(out_);
    ended.err = contents(err_);
    return ended;
  }

 private:
  static std::string contents(std::FILE* file) {
    std::string text;
    char buffer[4096];
    std::rewind(file);
    while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file)) text.append(buffer, count);
    return text;
  }

  std::FILE* out_;
  std::FILE* err_;
  std::chrono::steady_clock::time_point end_;
  pid_t process_ = 0;
};

/// Runs `linnet` with these arguments to its end.
inline Ended run_linnet(const Strings& arguments, const Program::Limits& limits = {}) {
  return Program(arguments, limits).wait();
}

/// The same where it has to succeed; shows what it said where it does not.
inline Ended succeed(const Strings& arguments, const Program::Limits& limits = {}) {
  Ended ended = run_linnet(arguments, limits);
  std::string line = "linnet";
  for (const std::string& word : arguments) line += " " + word;
  EXPECT_EQ(ended.status, 0) << line << "\nsignal " << ended.signal << "\n" << ended.err;
  return ended;
}

/// How often tests kill a command: what the environment variable LINNET_KILLS says, or `otherwise`.
inline int kill_count(int otherwise) {
  const char* wanted = std::getenv("LINNET_KILLS");
  return wanted != nullptr ? std::max(1, std::atoi(wanted)) : otherwise;
}

inline Strings lines_of(const std::string& text) {
  Strings lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// What it printed with --json.
inline Json json_of(const Ended& ended) { return parse_json(ended.out, "standard output"); }

/// The numbers of a CSV file with a header, by line.
inline std::vector<std::vector<double>> numbers_of(const std::string& csv) {
  std::vector<std::vector<double>> rows;
  const Strings lines = lines_of(csv);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    std::istringstream line(lines[i]);
    std::string cell;
    rows.emplace_back();
    while (std::getline(line, cell, ',')) rows.back().push_back(std::stod(cell));
  }
  return rows;
}

inline Strings joined(Strings first, const Strings& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace linnet
