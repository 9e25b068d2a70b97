#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <future>

#include "apps/program.h"
#include "apps/tiny_models.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

/// A terminal of that many columns, which a program writes to by its name.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    grantpt(master_);
    unlockpt(master_);
    name_ = ptsname(master_);
    // A terminal that nobody has open ends what its master reads.
    slave_ = open(name_.c_str(), O_RDWR | O_NOCTTY);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(slave_, TIOCSWINSZ, &size);
    written_ = std::async(std::launch::async, [this] {
      std::string text;
      char buffer[4096];
      for (ssize_t count = 0; (count = read(master_, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(count));
      return text;
    });
  }
  ~Terminal() { close(master_); }

  const std::string& name() const { return name_; }

  /// All that was written, when the program has ended.
  std::string written() {
    close(slave_);
    return written_.get();
  }

 private:
  int master_, slave_;
  std::string name_;
  std::future<std::string> written_;
};

std::size_t characters(const std::string& text) {
  std::size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  return count;
}

TEST(ProgressLine, IsNoWiderThanTheTerminal) {
  constexpr unsigned short columns = 40;
  const TemporaryFolder folder;
  Terminal terminal(columns);
  succeed({"train", TinyModels::get().config("digits"), "--out", (folder / "run").string(), "--set",
           "training.steps=600", "--set", "training.evaluate_every=0", "--set", "training.sample_every=0",
           "--set", "training.checkpoint_every=1000"},
          {.err = terminal.name()});
  const std::string written = terminal.written(), rewrite = "\r\x1b[K";
  int cut = 0;
  for (std::size_t at = written.find(rewrite); at != std::string::npos;) {
    at += rewrite.size();
    const std::size_t next = written.find(rewrite, at);
    const std::string line = written.substr(at, next == std::string::npos ? next : next - at);
    at = next;
    if (line.find('\n') != std::string::npos) continue;  // kept, and not rewritten
    EXPECT_LT(characters(line), columns) << line;
    cut += line.ends_with("…");
  }
  EXPECT_GT(cut, 0) << written;
}

}  // namespace
}  // namespace linnet
