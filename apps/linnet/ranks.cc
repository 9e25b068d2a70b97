#include "ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <new>
#include <system_error>

#include "base/fail.h"
#include "comm/gather.h"
#include "comm/mpi/start_ranks.h"
#include "generation/snapshot.h"
#include "io/file.h"
#include "linnet/instruction_set.h"
#include "linnet/version.h"
#include "report.h"

namespace linnet {
namespace {

constexpr int failed = 1;
constexpr int usage = 2;

/// An error as the program ends with it.
struct Complaint {
  std::string line;
  int status = failed;
};

/// Of the exception that is being handled.
Complaint complaint() {
  try {
    throw;
  } catch (const RankFailure& failure) {
    return {fmt::format("linnet: {}", failure.what()), failure.status()};
  } catch (const CommandLineError& error) {
    return {error.what(), usage};
  } catch (const UsageError& error) {
    return {fmt::format("linnet: {}", error.what()), usage};
  } catch (const std::bad_alloc&) {
    return {"linnet: [memory] expected more memory than this machine has free", failed};
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string sentence =
        fmt::format("cannot use {}: {}", error.path1().string(), error.code().message());
    return {"linnet: " + error_message("files", sentence), failed};
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) == 0) return {fmt::format("linnet: {}", error.what()), failed};
    return {fmt::format("linnet: [output] cannot write standard output: {}", error.code().message()), failed};
  } catch (const std::exception& error) {
    return {fmt::format("linnet: {}", error.what()), failed};
  }
}

}  // namespace

int run_on_ranks(const std::function<void(Communicator&)>& program) {
  std::unique_ptr<Communicator> ranks;
  try {
    ranks = start_ranks();
    if (ranks->rank() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr)
      fail("ranks", "cannot silence the standard output of rank {}", ranks->rank());
    program(*ranks);
    return 0;
  } catch (...) {
    const Complaint about = complaint();
    if (ranks && !ranks->fail(about.line, about.status)) return about.status;
    print_note(about.line);
    return about.status;
  }
}

void check_ranks(Communicator& ranks, const std::string& command) {
  constexpr std::array<const char*, 3> divided = {"train", "generate", "evaluate"};
  if (ranks.size() > 1 && std::ranges::find(divided, command) == divided.end())
    fail<UsageError>("mpirun", "expected train, generate or evaluate for {} ranks, got {}", ranks.size(),
                     command);
  require_agreement(ranks, {{"the command", command},
                            {"the version", version()},
                            {"the instruction set (LINNET_ISA)", instruction_set()}});
}

void require_same_work(Communicator& ranks, const RankWork& work) {
  std::vector<Shared> things;
  for (const Option& option : work.options)
    if (std::ranges::count(work.apart, option.name()) == 0)
      things.push_back({option.name(), option.count() > 0 ? option.text() : "its default"});
  things.push_back({"the model", fmt::format("one with the fingerprint {:016x}", fingerprint(work.model))});
  std::ranges::copy(work.inputs, std::back_inserter(things));
  require_agreement(ranks, things);
}

void on_first_rank(Communicator& ranks, const std::function<void()>& work) {
  enum Outcome : std::int64_t { done, wrong_use, error };
  std::int64_t outcome = done;
  std::string problem;
  if (ranks.rank() == 0) {
    try {
      work();
    } catch (const UsageError& found) {
      outcome = wrong_use;
      problem = found.what();
    } catch (const Error& found) {
      outcome = error;
      problem = found.what();
    }
  }
  ranks.broadcast(std::as_writable_bytes(std::span(&outcome, 1)), 0);
  if (outcome == done) return;
  broadcast(ranks, problem);
  if (outcome == wrong_use) throw UsageError(problem);
  throw Error(problem);
}

std::string read_input(Communicator& ranks, const std::string& file) {
  if (file != "-") return read_file(file);
  std::string text;
  on_first_rank(ranks, [&] { text = read_file("/dev/stdin"); });
  broadcast(ranks, text);
  return text;
}

std::vector<SavedStream> gather_streams(Communicator& ranks, std::vector<SavedStream> mine) {
  if (ranks.size() == 1) return mine;
  std::vector<std::int64_t> left;
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::vector<std::byte>> states;
  for (SavedStream& stream : mine) {
    left.push_back(stream.left);
    tokens.push_back(std::move(stream.tokens));
    states.push_back(std::move(stream.state));
  }
  left = gather(ranks, std::move(left));
  tokens = gather_lists(ranks, std::move(tokens));
  states = gather_lists(ranks, std::move(states));
  std::vector<SavedStream> all;
  for (std::size_t i = 0; i < left.size(); ++i)
    all.push_back({left[i], std::move(tokens[i]), std::move(states[i])});
  return all;
}

}  // namespace linnet
