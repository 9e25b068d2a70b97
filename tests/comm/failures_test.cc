// Starts failing_ranks by mpirun, and reads what its ranks print. The arguments are the command that starts
// ranks.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace linnet {
namespace {

std::string mpirun;
std::string program;

struct Outcome {
  int status = -1;
  std::string text;
};

Outcome run(int ranks, const std::string& arguments, const std::string& options = {}) {
  const std::string command =
      fmt::format("timeout 60 {} -n {} {} {} {} 2>&1", mpirun, ranks, options, program, arguments);
  Outcome result;
  std::FILE* output = popen(command.c_str(), "r");
  if (!output) return result;
  for (int c = std::fgetc(output); c != EOF; c = std::fgetc(output))
    result.text.push_back(static_cast<char>(c));
  const int status = pclose(output);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

void expect_one_sentence(const Outcome& outcome, int ranks, int dead) {
  EXPECT_NE(outcome.status, 124) << "the ranks that live have not ended:\n" << outcome.text;
  EXPECT_EQ(count(outcome.text, "linnet: "), 1) << outcome.text;
  EXPECT_EQ(count(outcome.text, fmt::format("linnet: [ranks] rank {} of {} (process ", dead, ranks)), 1)
      << outcome.text;
  EXPECT_EQ(count(outcome.text, ") has died: the last good checkpoint is runs/one/7\n"), 1) << outcome.text;
}

void expect_failure(const Outcome& outcome, int ranks, int dead) {
  EXPECT_NE(outcome.status, 0) << outcome.text;
  expect_one_sentence(outcome, ranks, dead);
}

TEST(RankFailures, DeathOfAnyRankEndsTheOthersWithOneSentence) {
  for (int ranks = 2; ranks <= 3; ++ranks)
    for (int dead = 0; dead < ranks; ++dead)
      expect_failure(run(ranks, fmt::format("kill {}", dead)), ranks, dead);
}

TEST(RankFailures, DeathIsFoundWhileTheOthersCompute) { expect_failure(run(3, "kill-idle 1"), 3, 1); }

TEST(RankFailures, DeathIsFoundBySilence) {
  for (int dead = 0; dead < 3; ++dead) expect_failure(run(3, fmt::format("kill {} silence", dead)), 3, dead);
}

// Open MPI holds back what the socket does not take, and ends the processes when the connection breaks.
TEST(RankFailures, DeathOfARankWithMessagesInTheQueueIsSaid) {
  for (const char* silence : {"", " silence"})
    for (int dead = 0; dead < 3; ++dead)
      expect_failure(run(3, fmt::format("kill-full {}{}", dead, silence), "--mca btl tcp,self"), 3, dead);
}

// A send that is the first to meet the broken connection ends a process, or keeps Open MPI busy without end.
TEST(RankFailures, DeathOfARankIsSaidWhileOthersSendToIt) {
  for (int repetition = 0; repetition < 2; ++repetition)
    for (int dead = 0; dead < 3; ++dead)
      expect_failure(run(3, fmt::format("kill-told {} silence", dead), "--mca btl tcp,self"), 3, dead);
}

TEST(RankFailures, DeathIsFoundWhereTheLauncherEndsNobody) {
  // The status is then that of mpirun alone.
  expect_one_sentence(run(3, "kill 0", "--enable-recovery"), 3, 0);
  expect_one_sentence(run(3, "kill 2 silence", "--enable-recovery"), 3, 2);
}

// The lowest rank that is not known to be dead is dead too.
TEST(RankFailures, DeathIsSaidWhereTheRankThatWouldSayItHasDiedToo) {
  expect_one_sentence(run(4, "kill-two 0 silence", "--enable-recovery"), 4, 0);
}

TEST(RankFailures, ErrorOfOneRankIsTheOnlySentence) {
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome outcome = run(3, fmt::format("throw {}", rank));
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(outcome.status, 124) << outcome.text;
    EXPECT_EQ(count(outcome.text, "linnet: "), 1) << outcome.text;
    EXPECT_EQ(count(outcome.text, fmt::format("linnet: rank {} has a full disk\n", rank)), 1) << outcome.text;
  }
}

// The launcher's status is that of the rank that ends first.
TEST(RankFailures, AllRanksEndWithTheStatusOfTheOneThatFailed) {
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome outcome = run(3, fmt::format("throw-usage {}", rank));
    EXPECT_EQ(outcome.status, 2) << outcome.text;
    EXPECT_EQ(count(outcome.text, "linnet: expected another disk\n"), 1) << outcome.text;
  }
}

TEST(RankFailures, TheSameErrorOfAllRanksIsPrintedOnce) {
  const Outcome outcome = run(3, "throw -1");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << outcome.text;
  EXPECT_EQ(count(outcome.text, "linnet: "), 1) << outcome.text;
}

// mpirun ends all ranks as soon as one has ended with an error.
TEST(RankFailures, TheErrorIsPrintedBeforeAnyRankEnds) {
  for (const char* arguments : {"throw-late -1", "throw-late 1"}) {
    const Outcome outcome = run(3, arguments);
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(outcome.status, 124) << outcome.text;
    EXPECT_EQ(count(outcome.text, "linnet: "), 1) << outcome.text;
    EXPECT_EQ(count(outcome.text, "has a full disk\n"), 1) << outcome.text;
  }
}

TEST(RankFailures, AnErrorAfterTheOthersHaveEndedIsTheOnlySentence) {
  for (const char* options : {"", "--enable-recovery"}) {
    for (const int rank : {0, 2}) {
      const Outcome outcome = run(3, fmt::format("throw-last {}", rank), options);
      EXPECT_NE(outcome.status, 124) << outcome.text;
      EXPECT_EQ(count(outcome.text, "linnet: "), 1) << outcome.text;
      EXPECT_EQ(count(outcome.text, fmt::format("linnet: rank {} has a full disk\n", rank)), 1)
          << outcome.text;
    }
  }
}

TEST(RankFailures, AStopOfAllRanksIsNoDeath) {
  for (const char* arguments : {"stop -1", "stop -1 silence"}) {
    const Outcome outcome = run(3, arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_EQ(count(outcome.text, "has stopped in order"), 3) << outcome.text;
    EXPECT_EQ(count(outcome.text, "linnet: "), 0) << outcome.text;
  }
}

TEST(RankFailures, ARankThatEndsInOrderIsNotDead) {
  for (const char* arguments : {"finish 0", "finish-late 1 silence"}) {
    const Outcome outcome = run(3, arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_EQ(count(outcome.text, "has finished"), 3) << outcome.text;
    EXPECT_EQ(count(outcome.text, "linnet: "), 0) << outcome.text;
  }
}

// Of Open MPI's own ways to send, UCX has 2^23 tags alone.
TEST(RankFailures, TagsOfMpiLimitTheCommunicators) {
  const Outcome enough = run(3, "split -1", "-x LINNET_TAGS=393216");  // 3 · 2^17
  EXPECT_EQ(enough.status, 0) << enough.text;
  EXPECT_EQ(count(enough.text, "has finished"), 3) << enough.text;
  const Outcome fewer = run(3, "split -1", "-x LINNET_TAGS=393215");
  EXPECT_EQ(fewer.status, 1) << fewer.text;
  EXPECT_EQ(count(fewer.text, "linnet: [split] expected at most 2 communicators, got more\n"), 1)
      << fewer.text;
  EXPECT_EQ(count(fewer.text, "linnet: "), 1) << fewer.text;
  const Outcome too_few = run(3, "split -1", "-x LINNET_TAGS=32768");
  EXPECT_EQ(too_few.status, 2) << too_few.text;
  EXPECT_EQ(count(too_few.text,
                  "linnet: [ranks] expected an MPI with 262144 tags (MPI_TAG_UB), got one with 32768\n"),
            1)
      << too_few.text;
  EXPECT_EQ(count(too_few.text, "linnet: "), 1) << too_few.text;
}

}  // namespace
}  // namespace linnet

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 3) return 2;
  linnet::mpirun = argv[1];
  linnet::program = argv[2];
  return RUN_ALL_TESTS();
}
