// Runs on every rank that mpirun starts.
#include "comm/mpi/shared_flag.h"

#include <gtest/gtest.h>
#include <mpi.h>

namespace linnet {
namespace {

int ranks() {
  int result = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &result);
  return result;
}

int raised_by(SharedFlag& flag) {
  int first = flag.raise() ? 1 : 0, all = 0;
  MPI_Allreduce(&first, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

TEST(SharedFlag, IsRaisedByOneRank) {
  SharedFlag flag;
  EXPECT_EQ(raised_by(flag), 1);
  EXPECT_EQ(raised_by(flag), 0);
  flag.close();
}

TEST(SharedFlag, IsRaisedByEveryRankApart) {
  SharedFlag flag(true);
  EXPECT_EQ(raised_by(flag), ranks());
  EXPECT_EQ(raised_by(flag), 0);
  flag.close();
}

}  // namespace
}  // namespace linnet

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  MPI_Init(&argc, &argv);
  const int result = RUN_ALL_TESTS();
  MPI_Finalize();
  return result;
}
