#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/bench_rows.h"
#include "apps/program.h"
#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "io/file.h"
#include "io/json.h"
#include "io/png.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

/// Streams that are written to a file and continued by other processes.
class States : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  const TinyModels& tiny_ = TinyModels::get();
  TemporaryFolder folder_;
  std::string a_ = path("a.states"), b_ = path("b.states");
};

TEST_F(States, OfATextGoOnWithTheBytesOfOneRun) {
  const Strings begin = {"generate", tiny_.text(), "--prompt", "the quick", "--length", "40", "--seed", "3"};
  for (const Strings& cache : {Strings{}, Strings{"--no-cache"}}) {
    const std::string whole = succeed(joined(begin, cache)).out;
    std::string parts = succeed(joined(joined(begin, cache), {"--steps", "11", "--save-states", a_})).out;
    EXPECT_EQ(parts.size(), 9 + 11);
    const Strings go_on = joined({"generate", tiny_.text()}, cache);
    parts += succeed(joined(go_on, {"--states", a_, "--steps", "17", "--save-states", b_})).out;
    parts += succeed(joined(go_on, {"--states", b_})).out;
    EXPECT_EQ(parts, whole);
  }
}

TEST_F(States, OfSeveralTextsGoOnEachWithItsOwnSeed) {
  const Strings begin = {"generate", tiny_.copy(), "--prompt", "0 3 1", "--length",
                         "9",        "--count",    "3",        "--json"};
  const Json whole = json_of(succeed(begin))["results"];
  const Json first = json_of(succeed(joined(begin, {"--steps", "4", "--save-states", a_})));
  const Json second = json_of(succeed({"generate", tiny_.copy(), "--states", a_, "--json"}));
  EXPECT_EQ(first["tokens"], 12);
  EXPECT_EQ(second["tokens"], 15);
  ASSERT_EQ(second["results"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(
        first["results"][i]["text"].get<std::string>() + second["results"][i]["text"].get<std::string>(),
        whole[i]["text"].get<std::string>());
}

TEST_F(States, OfPicturesEndInTheFileOfOneRun) {
  const std::string whole = path("whole.png"), half = path("half.png"), parts = path("parts.png"),
                    in = path("in.png");
  write_png(in, {8, 8, 1, std::vector<std::uint8_t>(64, 200)});
  for (const Strings& options : {Strings{"--count", "5", "--label", "3,1"}, Strings{"--complete", in}}) {
    const Strings begin =
        joined({"generate", tiny_.digits(), "--seed", "4", "--temperature", "0.8"}, options);
    succeed(joined(begin, {"--out", whole}));
    succeed(joined(begin, {"--streams", "2", "--steps", "13", "--save-states", a_, "--out", half}));
    EXPECT_EQ(read_png(half).width, read_png(whole).width);
    EXPECT_NE(read_file(half), read_file(whole));
    succeed({"generate", tiny_.digits(), "--states", a_, "--steps", "9", "--save-states", b_});
    succeed({"generate", tiny_.digits(), "--states", b_, "--threads", "1", "--out", parts});
    EXPECT_EQ(read_file(parts), read_file(whole));
    // Steps beyond the end are not taken, and nothing is left to be done then.
    succeed({"generate", tiny_.digits(), "--states", b_, "--steps", "1000", "--save-states", a_});
    succeed({"generate", tiny_.digits(), "--states", a_, "--out", parts});
    EXPECT_EQ(read_file(parts), read_file(whole));
  }
}

TEST_F(States, ThatDoNotFitAreRefused) {
  succeed({"generate", tiny_.text(), "--length", "9", "--steps", "4", "--save-states", a_});
  const Strings go_on = {"generate", tiny_.text(), "--states", a_};
  refuses(failed, {"generate", tiny_.copy(), "--states", a_},
          {"expected a snapshot of this model", "one of other settings"});
  refuses(failed, {"generate", tiny_.digits(), "--states", a_, "--out", path("o.png")},
          {"expected a snapshot of this model"});
  refuses(failed, joined(go_on, {"--no-cache"}), {"cache"});
  for (const Strings& option :
       {Strings{"--prompt", "a"}, Strings{"--prompt-file", "a"}, Strings{"--seed", "1"},
        Strings{"--count", "2"}, Strings{"--length", "3"}, Strings{"--top-k", "3"}})
    refuses(usage, joined(go_on, option), {"--states", option.front()});
  refuses(usage, {"generate", tiny_.text(), "--steps", "4"}, {"--steps", "--save-states"});
  refuses(usage, {"generate", tiny_.text(), "--save-states", b_}, {"--save-states", "--steps"});
  refuses(usage, {"generate", tiny_.text(), "--steps", "0", "--save-states", b_}, {"--steps", "0"});
  refuses(failed, {"generate", tiny_.text(), "--steps", "1", "--save-states", folder_.path().string()},
          {folder_.path().string()});
  const std::string good = read_file(a_);
  for (const std::string& bad : {std::string(), good.substr(0, 30), good.substr(0, good.size() - 1),
                                 good + "x", "x" + good, std::string(300, '\0')}) {
    write_file_atomically(a_, bad);
    refuses(failed, go_on, {a_});
  }
  refuses(failed, {"generate", tiny_.text(), "--states", path("none")}, {"none"});
}

}  // namespace
}  // namespace linnet
