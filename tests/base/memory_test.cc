#include "base/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <string>

#include "support/errors.h"
#include "support/folder.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

/// A root folder in which proc/ and sys/ say what a test wants.
class AvailableMemory : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void machine_has(const std::string& kilobytes) const {
    write("proc/meminfo", "MemTotal: 99999999 kB\nMemFree: 17 kB\nMemAvailable:   " + kilobytes + " kB\n");
  }
  double available() const { return available_memory(root_.path()); }

  /// A group of version 2 with 5 bytes of cache that the system gives back.
  void group_2(const std::string& path, const std::string& limit, const std::string& usage) const {
    write(path + "/memory.max", limit + "\n");
    write(path + "/memory.current", usage + "\n");
    write(path + "/memory.stat", "anon 3\nfile 9\nactive_file 4\ninactive_file 5\n");
  }
  void group_1(const std::string& path, const std::string& limit, const std::string& usage) const {
    write(path + "/memory.limit_in_bytes", limit + "\n");
    write(path + "/memory.usage_in_bytes", usage + "\n");
    write(path + "/memory.stat", "inactive_file 1\ntotal_cache 9\ntotal_inactive_file 5\n");
  }

  Folder root_;
};

TEST_F(AvailableMemory, IsTheMachinesWithoutGroups) {
  EXPECT_TRUE(std::isinf(available()));  // nothing says
  machine_has("3000");
  EXPECT_EQ(available(), 3000 * 1024);
}

TEST_F(AvailableMemory, IsTheLeastOfAGroupAndThoseAboveIt) {
  machine_has("3000");
  write("proc/self/cgroup", "0::/user/work\n");
  write("proc/self/mountinfo",
        "24 30 0:22 / /proc rw,nosuid - proc proc rw\n"
        "31 25 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  group_2("sys/fs/cgroup/user/work", "max", "700");
  EXPECT_EQ(available(), 3000 * 1024);
  group_2("sys/fs/cgroup/user/work", "1000", "700");
  EXPECT_EQ(available(), 305);  // the cache is given back
  group_2("sys/fs/cgroup/user", "2000", "1900");
  EXPECT_EQ(available(), 105);
  group_2("sys/fs/cgroup/user", "2000", "2900");
  EXPECT_EQ(available(), 0);
  group_2("sys/fs/cgroup/user", "90000000", "0");
  group_2("sys/fs/cgroup/user/work", "90000000", "0");
  EXPECT_EQ(available(), 3000 * 1024);  // the machine has less
}

TEST_F(AvailableMemory, IsThatOfTheMountInsideAContainer) {
  machine_has("3000");
  write("proc/self/mountinfo", "31 25 0:26 /box/7 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  group_2("sys/fs/cgroup", "1000", "700");
  for (const char* group : {"0::/\n", "0::/box/7\n", "0::/../elsewhere\n"}) {
    write("proc/self/cgroup", group);
    EXPECT_EQ(available(), 305) << group;
  }
}

TEST_F(AvailableMemory, KnowsTheFirstVersionOfGroups) {
  machine_has("3000");
  write("proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/user/work\n0::/user\n");
  write("proc/self/mountinfo",
        "33 25 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "34 25 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  group_1("sys/fs/cgroup/cpu/other", "10", "0");  // no memory is limited there
  group_1("sys/fs/cgroup/memory/user/work", "9223372036854771712", "700");
  EXPECT_EQ(available(), 3000 * 1024);
  group_1("sys/fs/cgroup/memory/user", "1000", "700");
  EXPECT_EQ(available(), 305);
}

TEST(BytesText, HasThreeDigitsAndTheUnitThatKeepsThem) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1 kB");
  EXPECT_EQ(bytes_text(999'499), "999 kB");
  EXPECT_EQ(bytes_text(999'600), "1 MB");
  EXPECT_EQ(bytes_text(999.7e9), "1 TB");
  EXPECT_EQ(bytes_text(123.4e12), "123 TB");
}

TEST(RequireMemory, RefusesWhatNoMachineHas) {
  EXPECT_NO_THROW(require_memory("a page", 4096));
  const std::string what = error_of([] { require_memory("everything", 1e18); });
  EXPECT_NE(what.find("everything"), std::string::npos) << what;
  EXPECT_NE(what.find("1e+06 TB"), std::string::npos) << what;
}

}  // namespace
}  // namespace linnet
