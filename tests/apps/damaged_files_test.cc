// Models, data and other inputs that are damaged or do not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <vector>

#include "apps/program.h"
#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "data/idx.h"
#include "io/file.h"
#include "io/png.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "support/gzip.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

namespace fs = std::filesystem;

/// What a file may have become: `change` makes the bytes of a good one bad.
struct Damage {
  std::string name;
  std::function<std::string(std::string)> change;
};

const std::vector<Damage> damages = {
    {"empty", [](std::string) { return std::string(); }},
    {"truncated", [](std::string bytes) { return bytes.substr(0, bytes.size() / 2); }},
    {"without its end", [](std::string bytes) { return bytes.substr(0, bytes.size() - 13); }},
    {"damaged start",
     [](std::string bytes) {
       for (std::size_t i = 0; i < std::min<std::size_t>(bytes.size(), 12); ++i)
         bytes[i] = static_cast<char>(~bytes[i]);
       return bytes;
     }},
    {"something else",
     [](std::string) {
       return "\x7f"
              "ELF" +
              std::string(300, '\0');
     }},
};

/// Runs `check` with `path` missing, as a folder, and after every damage; then puts the file back.
void for_every_damage(const fs::path& path, const std::function<void()>& check) {
  const std::string good = read_file(path);
  for (const Damage& damage : damages) {
    SCOPED_TRACE(path.filename().string() + ", " + damage.name);
    write_file_atomically(path, damage.change(good));
    check();
  }
  {
    SCOPED_TRACE(path.filename().string() + ", missing");
    fs::remove(path);
    check();
  }
  {
    SCOPED_TRACE(path.filename().string() + ", a folder");
    fs::create_directory(path);
    check();
    fs::remove(path);
  }
  write_file_atomically(path, good);
}

TEST(DamagedModel, IsRefusedByEveryCommandThatReadsIt) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string run = copy_of(tiny.copy(), folder);
  for (const std::string file : {"config.json", "model.safetensors"}) {
    for_every_damage(fs::path(run) / file, [&] {
      const Ended ended = run_linnet({"inspect", run});
      EXPECT_NE(ended.status, 0);
      refuses(ended.status == usage ? usage : failed, {"inspect", run}, {run, file});
      refuses(ended.status == usage ? usage : failed, {"generate", run, "--length", "2"}, {run, file});
    });
    refuses(failed, {"evaluate", (folder / "none").string(), "--data", "copy"}, {"none", "config.json"});
  }
  succeed({"inspect", run});
}

TEST(DamagedModel, ConfigurationsThatCannotBeAreRefused) {
  const TemporaryFolder folder;
  const std::string run = copy_of(TinyModels::get().copy(), folder);
  const fs::path path = fs::path(run) / "config.json";
  const std::string good = read_file(path);
  const auto changed = [&](const std::string& from, const std::string& to, int status, const Strings& words) {
    std::string bad = good;
    const std::size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file_atomically(path, bad.replace(at, from.size(), to));
    refuses(status, {"inspect", run}, words);
  };
  changed("\"linnet\"", "\"llama\"", failed, {"config.json", "model_type"});
  changed("\"format\": 1", "\"format\": 99", failed, {"config.json", "format", "99"});
  changed("\"layers\": 1", "\"layers\": 2", failed, {"model.safetensors"});
  changed("\"layers\": 1", "\"layers\": -1", usage, {"config.json", "model.layers", "-1"});
  changed("\"layers\": 1", "\"layres\": 1", usage, {"config.json", "model.layres", "model.layers"});
  changed("\"heads\": 2", "\"heads\": 3", usage, {"model.heads", "3"});
  changed("\"width\": 16", "\"width\": 32", failed, {"model.safetensors", "32", "16"});
  changed("\"vocabulary\": 11", "\"vocabulary\": \"11\"", usage, {"config.json", "model.vocabulary"});
}

TEST(DamagedCheckpoint, IsPassedOverForTheOneBefore) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string run = copy_of(tiny.copy(), folder);
  const Strings resume = {"train", "--resume", run};
  const fs::path newest = fs::path(run) / "checkpoints/6";
  for (const std::string file : {"state.json", "optimiser.safetensors", "model.safetensors", "config.json"}) {
    for_every_damage(newest / file, [&] {
      fs::copy(run, folder / "copy", fs::copy_options::recursive);
      const Ended ended = succeed({"train", "--resume", (folder / "copy").string()});
      for (const std::string& words : {"checkpoints/6/" + file, std::string("taking an older checkpoint"),
                                       "resuming from " + (folder / "copy/checkpoints/4").string()})
        EXPECT_NE(ended.err.find(words), std::string::npos) << words << " in: " << ended.err;
      EXPECT_EQ(read_file(folder / "copy/model.safetensors"),
                read_file(fs::path(tiny.copy()) / "model.safetensors"));
      fs::remove_all(folder / "copy");
    });
  }
  fs::remove_all(fs::path(run) / "checkpoints/4");
  const std::string metrics = read_file(fs::path(run) / "metrics.jsonl");
  fs::remove(newest / "state.json");
  refuses(failed, resume, {"checkpoints/6", "state.json"});
  EXPECT_EQ(read_file(fs::path(run) / "metrics.jsonl"), metrics);
}

class DamagedData : public testing::Test {
 protected:
  DamagedData() {
    succeed({"data", "digits", "--out", mnist_, "--count", "20", "--test", "10", "--size", "8"});
  }
  Strings train(const std::string& source) const {
    return {"train", TinyModels::get().config("digits"), "--data", source,
            "--out", (folder_ / "run").string()};
  }

  TemporaryFolder folder_;
  std::string mnist_ = (folder_ / "mnist").string();
};

TEST_F(DamagedData, IdxFilesAreRefused) {
  for (const fs::directory_entry& entry : fs::directory_iterator(mnist_))
    for_every_damage(entry.path(),
                     [&] { refuses(failed, train(mnist_), {entry.path().filename().string()}); });
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  succeed(train(mnist_));
}

TEST_F(DamagedData, GzippedIdxFilesAreRefused) {
  const fs::path plain = fs::path(mnist_) / "train-images-idx3-ubyte", packed = plain.string() + ".gz";
  ASSERT_TRUE(fs::exists(plain));
  write_file_atomically(packed, gzipped(read_file(plain)));
  fs::remove(plain);
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.name);
    const std::string good = read_file(packed);
    write_file_atomically(packed, damage.change(good));
    refuses(failed, train(mnist_), {"train-images-idx3-ubyte.gz"});
    write_file_atomically(packed, good);
  }
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  succeed(train(mnist_));
}

TEST_F(DamagedData, LabelsThatDoNotFitAreRefused) {
  const fs::path labels = fs::path(mnist_) / "train-labels-idx1-ubyte";
  IdxArray array = read_idx(labels);
  array.values[3] = 10;
  write_idx(labels, array.shape, array.values);
  refuses(failed, train(mnist_), {"train-labels-idx1-ubyte", "10"});
  array.values.resize(19);
  array.shape = {19};
  write_idx(labels, array.shape, array.values);
  refuses(failed, train(mnist_), {"train-labels-idx1-ubyte", "19", "20"});
}

TEST_F(DamagedData, SourcesThatDoNotFitAreRefused) {
  const TinyModels& tiny = TinyModels::get();
  refuses(usage, train((folder_ / "none").string()), {"none", "digits"});
  fs::create_directory(folder_ / "empty");
  refuses(failed, train((folder_ / "empty").string()), {"train-images-idx3-ubyte"});
  const std::string out = (folder_ / "run").string();
  refuses(failed,
          {"train", tiny.config("text"), "--out", out, "--data", folder_.file("empty.txt", "").string()},
          {"empty.txt", "0"});
  refuses(failed,
          {"train", tiny.config("text"), "--out", out, "--data", folder_.file("short.txt", "short").string()},
          {"short.txt", "24", "5"});
  refuses(usage, {"train", tiny.config("text"), "--out", out}, {"a file of text"});
  refuses(usage, {"evaluate", tiny.text(), "--data", "digits"}, {"digits", "pixels"});
  refuses(usage, {"evaluate", tiny.digits(), "--data", "copy"}, {"model.vocabulary", "11", "8"});
  refuses(usage, {"evaluate", tiny.copy(), "--data", tiny.learnt()}, {"model.vocabulary", "256", "11"});
  refuses(usage, {"evaluate", tiny.copy(), "--data", "copy", "--attention", "lsh"},
          {"[evaluate] expected --attention with keys of its own", "linear", "got lsh"});
  for (const char* setting :
       {"attention.family=local", "attention.layers=local", "attention.decay=none", "model.layers=3"})
    refuses(usage, {"evaluate", tiny.copy(), "--data", "copy", "--set", setting}, {"--set", setting});
  refuses(usage, {"evaluate", tiny.copy(), "--data", "copy", "--attention", "softmaxx"},
          {"softmaxx", "softmax"});
  refuses(usage, {"evaluate", tiny.copy(), "--data", "copy", "--feature-map", "rellu"}, {"rellu", "relu"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(BadPicture, IsRefused) {
  const std::string model = TinyModels::get().digits();
  const TemporaryFolder folder;
  const std::string out = (folder / "out.png").string(), in = (folder / "in.png").string();
  const auto complete = [&](const std::string& path) -> Strings {
    return {"generate", model, "--complete", path, "--out", out};
  };
  write_png(in, {8, 8, 1, std::vector<std::uint8_t>(64, 77)});
  for_every_damage(in, [&] { refuses(failed, complete(in), {in}); });
  write_png(in, {7, 8, 1, std::vector<std::uint8_t>(56)});
  refuses(failed, complete(in), {in, "at least 8 × 8", "8 × 7"});
  write_png(in, {8, 8, 3, std::vector<std::uint8_t>(192, 5)});
  refuses(failed, complete(in), {in, "expected pictures of 1 channel (grey)", "3 channels"});
  const std::string idx = (folder / "in-idx").string();
  write_idx(idx, Shape{2, 8, 8}, std::vector<std::uint8_t>(128));
  for_every_damage(idx, [&] { refuses(failed, complete(idx), {idx}); });
  refuses(failed, joined(complete(idx), {"--count", "3"}), {idx, "3", "2"});
  write_idx(idx, Shape{2, 8, 7}, std::vector<std::uint8_t>(112));
  refuses(failed, complete(idx), {idx, "8 × 8", "8 × 7"});
  write_idx(idx, Shape{2, 8}, std::vector<std::uint8_t>(16));
  refuses(failed, complete(idx), {idx, "[2, 8]"});
  write_idx(idx, Shape{0, 8, 8}, {});
  refuses(failed, complete(idx), {idx, "0"});
  EXPECT_FALSE(fs::exists(out));
}

class BadAttention : public testing::Test {
 protected:
  /// A file of tensors of zeros.
  std::string file(const std::vector<std::pair<std::string, Shape>>& shapes, DType type = DType::f32) {
    const std::vector<double> zeros(4096);
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape] : shapes) tensors.push_back({name, type, shape, zeros.data()});
    write_safetensors(folder_ / "in.safetensors", tensors, {});
    return (folder_ / "in.safetensors").string();
  }
  void refuses_file(int status, const std::string& path, const Strings& options, const Strings& words) {
    refuses(status, joined({"attend", path, "--out", out_}, options), words);
    EXPECT_FALSE(fs::exists(out_));
  }

  TemporaryFolder folder_;
  std::string out_ = (folder_ / "out.safetensors").string();
  const std::vector<std::pair<std::string, Shape>> good_ = {
      {"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 4}}, {"v", {2, 5, 2, 3}}, {"grad_out", {2, 5, 2, 3}}};
};

TEST_F(BadAttention, DamagedFilesAreRefused) {
  const std::string path = file(good_);
  for_every_damage(path, [&] { refuses_file(failed, path, {}, {path}); });
  std::string huge(64, '\0');
  for (int i = 0; i < 8; ++i) huge[i] = '\x7f';
  write_file_atomically(path, huge);
  refuses_file(failed, path, {}, {path});
}

TEST_F(BadAttention, ShapesThatDoNotMatchAreRefused) {
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 4}}}), {}, {"v", "in.safetensors"});
  refuses_file(failed, file(good_, DType::f64), {}, {"q", "f32", "f64"});
  refuses_file(failed, file({{"q", {5, 2, 4}}, {"k", {5, 2, 4}}, {"v", {5, 2, 4}}}), {}, {"q", "[5, 2, 4]"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 3}}, {"v", {2, 5, 2, 3}}}), {}, {"4", "3"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 4}}, {"v", {2, 6, 2, 3}}}), {}, {"5", "6"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {3, 5, 2, 4}}, {"v", {3, 5, 2, 3}}}), {}, {"2", "3"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 1, 4}}, {"v", {2, 5, 1, 3}}}), {}, {"2", "1"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 7, 2, 4}}, {"v", {2, 7, 2, 3}}}),
               {"--mask", "causal"}, {"causal", "5", "7"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 4}}, {"v", {2, 5, 2, 3}}}), {"--gradients"},
               {"grad_out"});
  refuses_file(
      failed,
      file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 4}}, {"v", {2, 5, 2, 3}}, {"grad_out", {2, 5, 2, 4}}}),
      {"--gradients"}, {"[2, 5, 2, 4]", "[2, 5, 2, 3]"});
}

TEST_F(BadAttention, OptionsThatDoNotFitAreRefused) {
  const std::string path = file(good_);
  refuses_file(failed, path, {"--key-lengths", "5"}, {"key length", "2", "1"});
  refuses_file(failed, path, {"--key-lengths", "5,6"}, {"key length", "5", "6"});
  refuses_file(usage, path, {"--key-lengths", "5,-1"}, {"--key-lengths", "-1"});
  refuses_file(usage, path, {"--key-lengths", "5,x"}, {"--key-lengths", "x"});
  refuses_file(usage, path, {"--family", "lineer"}, {"lineer", "linear"});
  refuses_file(usage, path, {"--compare", "sofmax"}, {"sofmax", "softmax"});
  refuses_file(usage, path, {"--feature-map", "favour"}, {"favour"});
  refuses_file(usage, path, {"--normalise", "no"}, {"--normalise", "no"});
  refuses_file(usage, path, {"--epsilon", "nan"}, {"epsilon", "nan"});
  refuses_file(usage, path, {"--epsilon", "-1"}, {"epsilon", "-1"});
  refuses_file(usage, path, {"--alpha", "0"}, {"alpha", "0"});
  refuses_file(usage, path, {"--alpha", "nan"}, {"alpha", "nan"});
  refuses_file(usage, path, {"--scale", "inf", "--family", "softmax"}, {"scale", "inf"});
}

}  // namespace
}  // namespace linnet
