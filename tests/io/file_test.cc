#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>

#include "io/temporary_folder.h"
#include "support/gzip.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(File, RoundTripsBytesOfAnySize) {
  const TemporaryFolder folder;
  for (const std::size_t size : {0, 1, 63, 65536, 70001}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7);
    write_file_atomically(folder / "file", bytes);
    EXPECT_EQ(read_file(folder / "file"), bytes) << size;
    EXPECT_EQ(folder.entries(), 1);
  }
}

TEST(AtomicFile, IsWrittenInPiecesAndAppearsWhenCommitted) {
  const TemporaryFolder folder;
  folder.file("file", "old");
  {
    AtomicFile file(folder / "file");
    file.write(0, "0123");
  }
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(folder.entries(), 1);
  AtomicFile file(folder / "file");
  file.write(0, "????4567");
  file.write(8, "89");
  file.write(0, "0123");
  EXPECT_EQ(read_file(folder / "file"), "old");
  file.commit();
  EXPECT_EQ(read_file(folder / "file"), "0123456789");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFile, GivesAnOpenFileItsBytesWhenCommitted) {
  const TemporaryFolder folder;
  std::FILE* const open = std::fopen((folder / "file").c_str(), "w");
  ASSERT_NE(open, nullptr);
  AtomicFile file(fmt::format("/dev/fd/{}", fileno(open)));
  file.write(0, "????45");
  file.write(0, "0123");
  EXPECT_EQ(read_file(folder / "file"), "");
  file.commit();
  EXPECT_EQ(read_file(folder / "file"), "012345");
  std::fclose(open);
}

TEST(File, ErrorsNameTheFileAndTheReason) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { read_file(folder / "none"); }),
              AllOf(HasSubstr("none"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { read_file(folder.path()); }), HasSubstr("folder"));
  EXPECT_THAT(error_of([&] { write_file_atomically(folder.path(), "x"); }), HasSubstr("folder"));
  EXPECT_THAT(error_of([&] { write_file_atomically(folder / "none" / "file", "x"); }),
              AllOf(HasSubstr("none/file"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { write_file_atomically("", "x"); }), HasSubstr("empty"));
  EXPECT_THAT(error_of([&] { append_line(folder / "none" / "file", "x"); }), HasSubstr("none/file"));
}

TEST(File, AFullDeviceIsAnError) {
  EXPECT_THAT(error_of([] { write_file_atomically("/dev/full", "x"); }), HasSubstr("No space left"));
  EXPECT_THAT(error_of([] { append_line("/dev/full", "x"); }), HasSubstr("No space left"));
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

// Lets files grow to no more than so many bytes: what a full disk looks like to the writer.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit = {bytes, old_limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    ::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_limit_;
  void (*old_handler_)(int);
};

TEST(File, AFailedWriteLeavesTheOldFileAndNothingBesideIt) {
  const TemporaryFolder folder;
  folder.file("file", "old");
  {
    const FileSizeLimit limit(4096);
    EXPECT_THAT(error_of([&] { write_file_atomically(folder / "file", std::string(10000, 'x')); }),
                AllOf(HasSubstr("file"), HasSubstr("File too large")));
  }
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(File, FollowsASymbolicLink) {
  const TemporaryFolder folder;
  folder.file("file", "old");
  std::filesystem::create_symlink("file", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_EQ(read_file(folder / "file"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
}

TEST(File, FollowsASymbolicLinkThatLeadsToNothing) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "other");
  std::filesystem::create_symlink("other/file", folder / "link");
  std::filesystem::create_symlink("link", folder / "second");
  write_file_atomically(folder / "second", "new");
  EXPECT_EQ(read_file(folder / "other" / "file"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  std::filesystem::create_symlink("circle", folder / "circle");
  EXPECT_THAT(error_of([&] { write_file_atomically(folder / "circle", "new"); }),
              HasSubstr("symbolic links"));
}

// Two dots behind a symbolic link are the folder above the one that it leads to.
TEST(File, ReadsTwoDotsAsTheSystemDoes) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "other" / "inner");
  std::filesystem::create_directory_symlink("other/inner", folder / "link");
  folder.file("file", "mine");
  const std::filesystem::path path = folder / "link" / ".." / "file";
  write_file_atomically(path, "new");
  EXPECT_EQ(read_file(folder / "file"), "mine");
  EXPECT_EQ(read_file(folder / "other" / "file"), "new");
  EXPECT_EQ(absolute_path(path), std::filesystem::canonical(folder / "other" / "file"));

  create_folders(folder / "link" / ".." / "one" / "two" / "");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "other" / "one" / "two"));
  AtomicFolder written(folder / "link" / ".." / "one" / "three" / ".");
  written.commit();
  EXPECT_TRUE(std::filesystem::is_directory(folder / "other" / "one" / "three"));
  remove_folder(folder / "link" / ".." / "one");
  EXPECT_EQ(folder.entries(), 3);
}

TEST(AbsolutePath, IsWithoutDotsAndKeepsWhatIsNotThere) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "inner");
  const std::filesystem::path real = std::filesystem::canonical(folder.path());
  EXPECT_EQ(absolute_path(folder / "." / "none*" / "."), folder / "none*");
  EXPECT_EQ(absolute_path(folder / "none" / ""), folder / "none");
  EXPECT_EQ(absolute_path(folder / "inner" / ".." / "none"), real / "none");
  EXPECT_EQ(absolute_path(folder / "none" / ".." / "x"), folder / "none" / ".." / "x");
  EXPECT_EQ(absolute_path("."), std::filesystem::current_path());
  EXPECT_EQ(absolute_path("/"), "/");
  EXPECT_EQ(absolute_path("/.."), "/");
}

TEST(File, KeepsThePermissionsOfTheFileThatItReplaces) {
  using std::filesystem::perms;
  const TemporaryFolder folder;
  for (const perms mode : {perms(0600), perms(0400), perms(0666)}) {
    folder.file("file", "old");
    std::filesystem::permissions(folder / "file", mode);
    write_file_atomically(folder / "file", "new");
    EXPECT_EQ(std::filesystem::status(folder / "file").permissions(), mode);
    EXPECT_EQ(read_file(folder / "file"), "new");
    std::filesystem::remove(folder / "file");
  }
}

// An open file descriptor, closed at the end.
class OpenFile {
 public:
  explicit OpenFile(int number) : number_(number) {}
  ~OpenFile() { ::close(number_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  std::filesystem::path path() const { return fmt::format("/dev/fd/{}", number_); }

 private:
  int number_;
};

TEST(File, WritesStraightToPipesThatAreOpen) {
  const TemporaryFolder folder;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    const OpenFile writing(ends[1]);
    std::filesystem::create_symlink(writing.path(), folder / "link");
    write_file_atomically(writing.path(), "straight ");
    write_file_atomically(folder / "link", "through a link");
  }
  const OpenFile reading(ends[0]);
  EXPECT_EQ(read_file(reading.path()), "straight through a link");
}

TEST(File, WritesStraightToFilesThatAreOpen) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.file("file", "before\n");
  {
    const OpenFile file(::open(path.c_str(), O_WRONLY | O_APPEND));
    write_file_atomically(file.path(), "one\n");
    write_file_atomically(file.path(), "two\n");
  }
  EXPECT_EQ(read_file(path), "before\none\ntwo\n");
  const OpenFile unwritable(::open(path.c_str(), O_RDONLY));
  EXPECT_THAT(error_of([&] { write_file_atomically(unwritable.path(), "x"); }), HasSubstr("cannot write"));
  EXPECT_EQ(folder.entries(), 1);
}

TEST(File, HasAnyNameThatTheSystemTakes) {
  const TemporaryFolder folder;
  std::string umlauts = "x";
  while (umlauts.size() < 255) umlauts += "ä";
  for (const std::string& name : {std::string(255, 'n'), umlauts}) {
    write_file_atomically(folder / name, "new");
    EXPECT_EQ(read_file(folder / name), "new");
    std::filesystem::remove(folder / name);
    AtomicFolder(folder / name).commit();
    remove_folder(folder / name);
  }
  EXPECT_EQ(folder.entries(), 0);
  const std::filesystem::path longer = folder / std::string(300, 'n');
  EXPECT_THAT(error_of([&] { write_file_atomically(longer, "x"); }), HasSubstr("too long"));
  EXPECT_THAT(error_of([&] { AtomicFolder(longer).commit(); }), HasSubstr("too long"));
  EXPECT_THAT(error_of([&] { create_folders(longer); }), HasSubstr("too long"));
  EXPECT_EQ(folder.entries(), 0);
}

TEST(CreateFolders, MakesAllThatAreMissing) {
  const TemporaryFolder folder;
  create_folders(folder / "a" / "b" / "c");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a" / "b" / "c"));
  folder.file("a/file", "x");
  create_folders(folder / "a" / "b");
  EXPECT_EQ(read_file(folder / "a" / "file"), "x");
  std::filesystem::create_directory_symlink("a", folder / "link");
  create_folders(folder / "link");
  create_folders(folder / "link" / "d");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a" / "d"));
  EXPECT_THAT(error_of([&] { create_folders(folder / "a" / "file"); }),
              AllOf(HasSubstr("a/file"), HasSubstr("Not a directory")));
  EXPECT_THAT(error_of([&] { create_folders(folder / "a" / "file" / "below"); }), HasSubstr("below"));
}

// The temporary name of something that a process writes, on this machine or, with `elsewhere`, on another.
std::string temporary_name(const TemporaryFolder& folder, const std::string& name, pid_t process, int number,
                           bool elsewhere = false) {
  const std::string own = AtomicFolder(folder / "x").path().filename().string();
  std::string space = own.substr(own.rfind('-') + 1);  // with the .tmp behind it
  if (elsewhere) space.front() = space.front() == '0' ? '1' : '0';
  return fmt::format(".{}.{}-{}-{}", name, process, number, space);
}

TEST(File, IsNotWrittenThroughWhatLiesUnderATemporaryName) {
  // Names of temporary files can be guessed: they must not lead the bytes elsewhere, nor be emptied.
  const TemporaryFolder folder;
  folder.file("precious", "mine");
  // The numbers go on from those that this process has used.
  const std::string used = AtomicFolder(folder / "x").path().filename().string();
  const int first = std::stoi(used.substr(used.find('-') + 1));
  for (int number = first; number < first + 50; ++number)
    std::filesystem::create_symlink("precious", folder / temporary_name(folder, "file", ::getpid(), number));
  for (int i = 0; i < 3; ++i) write_file_atomically(folder / "file", "new");
  EXPECT_EQ(read_file(folder / "precious"), "mine");
  EXPECT_EQ(read_file(folder / "file"), "new");
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "file"));
}

TEST(File, BoundsWhatItReads) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_file(folder.file("file", "12345"), 5), "12345");
  EXPECT_THAT(error_of([&] { read_file(folder / "file", 4); }),
              AllOf(HasSubstr("at most 4"), HasSubstr("got 5")));
  EXPECT_THAT(error_of([] { read_file("/dev/zero", 1000); }), HasSubstr("at most 1000 bytes from /dev/zero"));
  EXPECT_THAT(error_of([] { read_file("/dev/zero"); }), HasSubstr("at most 268435456 bytes from /dev/zero"));
  std::error_code error;
  std::filesystem::resize_file(folder / "file", std::uintmax_t{1} << 42, error);  // sparse
  if (error) GTEST_SKIP() << "expected a file system with sparse files of 4 TiB: " << error.message();
  EXPECT_THAT(error_of([&] { read_file(folder / "file"); }), AllOf(HasSubstr("memory"), HasSubstr("file")));
}

TEST(File, IsReadPieceByPiece) {
  const TemporaryFolder folder;
  const InputFile file(folder.file("file", "0123456789"));
  EXPECT_EQ(file.size(), 10u);
  std::string piece(4, ' ');
  file.read(3, std::as_writable_bytes(std::span(piece)));
  EXPECT_EQ(piece, "3456");
  std::filesystem::resize_file(folder / "file", 5);
  EXPECT_THAT(error_of([&] { file.read(3, std::as_writable_bytes(std::span(piece))); }),
              HasSubstr("cut to 5"));
  EXPECT_THAT(error_of([&] { InputFile{folder / "none"}; }), HasSubstr("none"));
  EXPECT_THAT(error_of([&] { InputFile{folder.path()}; }), HasSubstr("folder"));
  EXPECT_THAT(error_of([] { InputFile{"/dev/zero"}; }), HasSubstr("device"));
}

TEST(Gzip, IsNotInflatedWithoutBounds) {
  const TemporaryFolder folder;
  const std::string zeros(20 << 20, '\0');
  const std::string bomb = gzipped(zeros);
  ASSERT_LT(bomb.size(), zeros.size() / 900);
  EXPECT_THAT(error_of([&] { read_maybe_gzipped(folder.file("bomb.gz", bomb), std::size_t{1} << 32); }),
              AllOf(HasSubstr("bomb.gz"), HasSubstr("gzipped")));
  const std::string small(1 << 20, '\0');
  EXPECT_EQ(read_maybe_gzipped(folder.file("small.gz", gzipped(small)), std::size_t{1} << 32), small);
}

TEST(File, AppendsLines) {
  const TemporaryFolder folder;
  append_line(folder / "log", "one");
  append_line(folder / "log", "");
  append_line(folder / "log", "three");
  EXPECT_EQ(read_file(folder / "log"), "one\n\nthree\n");
}

// The number of a process that has ended.
pid_t ended_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST(File, RemovesWhatKilledProgramsLeft) {
  const TemporaryFolder folder;
  const std::string stale = temporary_name(folder, "file", ended_process(), 0);
  const std::string running = temporary_name(folder, "file", ::getppid(), 0);
  folder.file(stale, "x");
  folder.file(running, "x");
  folder.file(".file.tmp", "x");
  write_file_atomically(folder / "file", "new");
  EXPECT_FALSE(std::filesystem::exists(folder / stale));
  EXPECT_TRUE(std::filesystem::exists(folder / running));
  EXPECT_TRUE(std::filesystem::exists(folder / ".file.tmp"));
}

TEST(File, RemovesWhatProgramsOfOtherMachinesLeftOnlyADayLater) {
  const TemporaryFolder folder;
  const pid_t ended = ended_process();
  const std::string old = temporary_name(folder, "file", ended, 0, true),
                    fresh = temporary_name(folder, "file", ended, 1, true);
  for (const std::string& name : {old, fresh}) folder.file(name, "x");
  using Clock = std::filesystem::file_time_type::clock;
  std::filesystem::last_write_time(folder / old, Clock::now() - std::chrono::hours(25));
  write_file_atomically(folder / "file", "new");
  EXPECT_FALSE(std::filesystem::exists(folder / old));
  EXPECT_TRUE(std::filesystem::exists(folder / fresh));
}

TEST(File, RemovesTemporariesOfKilledProgramsOfAnyName) {
  const TemporaryFolder folder;
  const pid_t ended = ended_process();
  for (const std::string& name :
       {temporary_name(folder, "one", ended, 0), temporary_name(folder, "two.words", ended, 7)})
    folder.file(name, "x");
  const std::string inner = temporary_name(folder, "12", ended, 3);
  std::filesystem::create_directory(folder / inner);
  folder.file(inner + "/inside", "x");
  const std::string name = temporary_name(folder, "one", ended, 0);
  const std::vector<std::string> others = {temporary_name(folder, "one", ::getppid(), 0),
                                           name.substr(1),
                                           ".tmp",
                                           ".one.tmp",
                                           name.substr(name.find('.', 1)),
                                           name.substr(0, name.rfind('.')),
                                           ".one.x" + name.substr(5)};
  for (const std::string& other : others) folder.file(other, "x");
  remove_temporaries(folder.path());
  for (const std::string& other : others) EXPECT_TRUE(std::filesystem::exists(folder / other)) << other;
  EXPECT_EQ(folder.entries(), std::ssize(others));
  EXPECT_NO_THROW(remove_temporaries(folder / "none"));
}

// Runs `forever` in a process of its own and kills it after so many microseconds.
void run_and_kill(const std::function<void(int turn)>& forever, useconds_t after) {
  const pid_t child = ::fork();
  if (child == 0)
    for (int turn = 0;; ++turn) forever(turn);
  ::usleep(after);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(File, AKilledWriterLeavesTheOldOrTheNewFile) {
  const TemporaryFolder folder;
  const auto content = [](int turn) { return std::string(50000, static_cast<char>('a' + turn % 26)); };
  write_file_atomically(folder / "file", content(0));
  for (int round = 0; round < 15; ++round) {
    run_and_kill([&](int turn) { write_file_atomically(folder / "file", content(turn)); },
                 1000 + round * 531);
    const std::string found = read_file(folder / "file");
    EXPECT_EQ(found, content(found[0] - 'a')) << round;
  }
  write_file_atomically(folder / "file", "last");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFolder, AKilledWriterLeavesTheOldOrTheNewFolder) {
  const TemporaryFolder folder;
  const auto write = [&](int turn) {
    AtomicFolder written(folder / "model");
    for (const char* name : {"a", "b"}) write_file_atomically(written.path() / name, std::to_string(turn));
    written.commit();
  };
  write(0);
  for (int round = 0; round < 15; ++round) {
    run_and_kill(write, 1000 + round * 531);
    EXPECT_EQ(read_file(folder / "model" / "a"), read_file(folder / "model" / "b")) << round;
  }
  write(0);
  EXPECT_EQ(folder.entries(), 1);
}

TEST(Folder, AKilledProgramRemovesItWholeOrNotAtAll) {
  const TemporaryFolder folder;
  constexpr int files = 40;
  const std::filesystem::path path = folder / "model";
  for (int round = 0; round < 15; ++round) {
    run_and_kill(
        [&](int) {
          AtomicFolder written(path);
          for (int i = 0; i < files; ++i) std::ofstream(written.path() / std::to_string(i)) << i;
          written.commit();
          remove_folder(path);
        },
        3000 + round * 1531);
    const bool there = std::filesystem::exists(path);
    for (int i = 0; i < files; ++i)
      EXPECT_EQ(std::filesystem::exists(path / std::to_string(i)), there) << i << " in round " << round;
  }
  remove_temporaries(folder.path());
  if (std::filesystem::exists(path)) remove_folder(path);
  EXPECT_EQ(folder.entries(), 0);
  EXPECT_THAT(error_of([&] { remove_folder(path); }), HasSubstr("No such file"));
  EXPECT_EQ(folder.entries(), 0);
}

TEST(Gzip, PlainAndGzippedReadAlike) {
  const TemporaryFolder folder;
  for (const std::size_t size : {0, 1, 1000, 262144, 600000}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * i) >> 7);
    EXPECT_EQ(read_maybe_gzipped(folder.file("plain", bytes), size), bytes);
    EXPECT_EQ(read_maybe_gzipped(folder.file("zipped", gzipped(bytes)), size), bytes);
    EXPECT_EQ(read_maybe_gzipped(folder.file("twice", gzipped(bytes) + gzipped(bytes)), 2 * size),
              bytes + bytes);
    if (size == 0) continue;
    EXPECT_THAT(error_of([&] { read_maybe_gzipped(folder / "plain", size - 1); }), HasSubstr("at most"));
    EXPECT_THAT(error_of([&] { read_maybe_gzipped(folder / "zipped", size - 1); }), HasSubstr("at most"));
  }
}

TEST(Gzip, EveryTruncationAndDamagedByteIsNoticed) {
  const TemporaryFolder folder;
  const std::string bytes = "a short text with some repetition, repetition, repetition";
  const std::string whole = gzipped(bytes);
  for (std::size_t size = 2; size < whole.size(); ++size)
    EXPECT_THROW(read_maybe_gzipped(folder.file("cut", whole.substr(0, size)), 1000), Error) << size;
  EXPECT_THROW(read_maybe_gzipped(folder.file("more", whole + "x"), 1000), Error);
  // The ten bytes of the header hold a time, flags and a system that do not matter to the content.
  for (std::size_t i = 10; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    // The last byte of the content has bits that mean nothing.
    try {
      EXPECT_EQ(read_maybe_gzipped(folder.file("damaged", damaged), 1000), bytes) << i;
      EXPECT_EQ(i, whole.size() - 9);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("damaged"));
    }
  }
}

TEST(AtomicFolder, AppearsOnlyWhenCommitted) {
  const TemporaryFolder folder;
  {
    AtomicFolder model(folder / "model");
    write_file_atomically(model.path() / "a", "1");
    EXPECT_FALSE(std::filesystem::exists(folder / "model"));
    model.commit();
    EXPECT_EQ(read_file(folder / "model" / "a"), "1");
  }
  EXPECT_EQ(folder.entries(), 1);
  {
    AtomicFolder model(folder / "model");
    write_file_atomically(model.path() / "a", "2");
  }
  EXPECT_EQ(read_file(folder / "model" / "a"), "1");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFolder, ReplacesAFullFolder) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "model" / "inner");
  folder.file("model/inner/old", "old");
  AtomicFolder model(std::filesystem::path((folder / "model").string() + "/"));
  std::filesystem::create_directory(model.path() / "inner");
  write_file_atomically(model.path() / "inner" / "new", "new");
  model.commit();
  EXPECT_EQ(read_file(folder / "model" / "inner" / "new"), "new");
  EXPECT_FALSE(std::filesystem::exists(folder / "model" / "inner" / "old"));
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFolder, OfANewOrEmptyOneReplacesNothing) {
  constexpr AtomicFolder::Place place = AtomicFolder::Place::new_or_empty;
  const TemporaryFolder folder;
  for (const char* name : {"new", "empty"}) {
    if (name == std::string("empty")) std::filesystem::create_directory(folder / name);
    AtomicFolder written(folder / name, place);
    write_file_atomically(written.path() / "a", "1");
    written.commit();
    EXPECT_EQ(read_file(folder / name / "a"), "1");
  }
  EXPECT_THAT(error_of([&] { AtomicFolder(folder / "new", place); }), HasSubstr("new or empty folder"));
  {
    std::filesystem::create_directory(folder / "taken");
    AtomicFolder written(folder / "taken", place);
    folder.file("taken/mine", "mine");
    EXPECT_THAT(error_of([&] { written.commit(); }), AllOf(HasSubstr("taken"), HasSubstr("new or empty")));
  }
  EXPECT_EQ(read_file(folder / "taken" / "mine"), "mine");
  EXPECT_EQ(folder.entries(), 3);
}

// Who stands in a folder that is replaced stands in a deleted one.
TEST(AtomicFolder, RefusesTheCurrentFolderWhereItWouldBeReplaced) {
  const TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  EXPECT_THAT(error_of([&] { AtomicFolder(".", AtomicFolder::Place::new_or_empty); }), HasSubstr("./new"));
  EXPECT_THAT(error_of([&] { AtomicFolder(folder.path(), AtomicFolder::Place::new_or_empty); }),
              HasSubstr("current"));
  std::filesystem::current_path(before);
  EXPECT_EQ(folder.entries(), 0);
}

TEST(AtomicFolder, RefusesAFileInItsPlaceAndAMissingParent) {
  const TemporaryFolder folder;
  folder.file("file", "x");
  EXPECT_THAT(error_of([&] { AtomicFolder(folder / "file"); }), HasSubstr("got the file"));
  EXPECT_THAT(error_of([&] { AtomicFolder(folder / "none" / "model"); }), HasSubstr("No such file"));
  EXPECT_EQ(folder.entries(), 1);
}

}  // namespace
}  // namespace linnet
