// Commands that read what a model says of given data: evaluate --per-token, fill and embed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "apps/refusal.h"
#include "apps/sequence_runs.h"
#include "apps/tiny_models.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "linnet/dataset.h"
#include "linnet/model.h"

namespace linnet {
namespace {

using testing::HasSubstr;

constexpr const char* tiny_encoder =
    "[data]\nkind = \"fasta\"\nlength = 12\n"
    "[model]\nobjective = \"masked\"\nlayers = 1\nheads = 2\nwidth = 16\nfeed_forward = 32\n"
    "[training]\nsteps = 4\nbatch = 4\nsample_every = 0\nevaluate_every = 0\ncheckpoint_every = 4\n";

class Encoder : public testing::Test {
 protected:
  /// Tokens of protein i, whose letters are those of the amino acids in the order of their tokens.
  static std::vector<std::int32_t> protein(int i) {
    std::vector<std::int32_t> tokens;
    for (int k = 0; k < 5 + i % 6; ++k) tokens.push_back((3 * i + k) % 20);
    return tokens;
  }

  Encoder() {
    std::string proteins;
    for (int i = 0; i < 20; ++i) {
      proteins += ">protein " + std::to_string(i) + "\n";
      for (const std::int32_t token : protein(i)) proteins += "ACDEFGHIKLMNPQRSTVWY"[token];
      proteins += "\n";
    }
    folder_.file("proteins.fasta", proteins);
    folder_.file("proteins.toml", tiny_encoder);
    succeed({"train", path("proteins.toml"), "--data", path("proteins.fasta"), "--out", path("run")});
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  TemporaryFolder folder_;
};

TEST(EvaluatePerToken, LinesAddUpToTheBitsThatArePrinted) {
  const TemporaryFolder folder;
  const std::string csv = (folder / "tokens.csv").string();
  const TinyModels& models = TinyModels::get();
  for (const Strings& chosen :
       {Strings{models.digits(), "digits"}, Strings{models.text(), models.learnt()}}) {
    const Json evaluation = json_of(succeed({"evaluate", chosen[0], "--data", chosen[1], "--examples", "7",
                                             "--batch", "3", "--per-token", csv, "--json"}));
    const std::string text = read_file(csv);
    EXPECT_EQ(lines_of(text)[0], "example,position,token,log_probability,bits");
    const auto rows = numbers_of(text);
    EXPECT_EQ(rows.size(), evaluation["tokens"].get<std::size_t>());
    double bits = 0;
    for (const auto& row : rows) {
      ASSERT_EQ(row.size(), 5u);
      EXPECT_NEAR(row[3], -row[4] * std::log(2.0), 1e-5);
      bits += row[4];
    }
    EXPECT_NEAR(bits / static_cast<double>(rows.size()), evaluation["bits_per_token"].get<double>(), 1e-5);
    EXPECT_GE(rows.back()[0], 6);
    EXPECT_EQ(rows[1][1], rows[0][1] + 1);
  }
  refuses(failed, {"evaluate", models.digits(), "--data", "digits", "--per-token", "/no/such/folder/x.csv"},
          {"/no/such/folder"});
}

TEST_F(Encoder, FillsHiddenResidues) {
  const std::string given = "ACD_FG?I";
  const Json result = json_of(succeed({"fill", path("run"), "--protein", given, "--json"}));
  ASSERT_EQ(result.size(), 1u);
  const std::string filled = result[0]["filled"];
  ASSERT_EQ(filled.size(), given.size());
  ASSERT_EQ(result[0]["hidden"].size(), 2u);
  for (const Json& hidden : result[0]["hidden"]) {
    const auto at = hidden["position"].get<std::size_t>();
    EXPECT_TRUE(at == 3 || at == 6);
    EXPECT_EQ(filled.substr(at, 1), hidden["written"].get<std::string>());
    EXPECT_GT(hidden["probability"].get<double>(), 1.0 / 26 / 2);
    EXPECT_LE(hidden["probability"].get<double>(), 1);
  }
  for (std::size_t i = 0; i < given.size(); ++i)
    if (i != 3 && i != 6) {
      EXPECT_EQ(filled[i], given[i]) << i;
    }
  const std::string plain = succeed({"fill", path("run"), "--protein", given}).out;
  EXPECT_EQ(lines_of(plain)[0], filled);
  EXPECT_THAT(plain, HasSubstr("probability"));

  folder_.file("hidden.fasta", ">one _\nACD_FG?I\n>two\nMKVX\n>three\nACD\n");
  const Json of_file = json_of(succeed({"fill", path("run"), "--fasta", path("hidden.fasta"), "--json"}));
  ASSERT_EQ(of_file.size(), 3u);
  EXPECT_EQ(of_file[0]["filled"], result[0]["filled"]);
  EXPECT_EQ(of_file[0]["hidden"], result[0]["hidden"]);
  EXPECT_EQ(of_file[0]["name"], "one _");
  EXPECT_EQ(of_file[2]["name"], "three");
  EXPECT_FALSE(result[0].contains("name"));
  EXPECT_TRUE(succeed({"fill", path("run"), "--fasta", path("hidden.fasta")}).out.starts_with(">one _\n"));
  EXPECT_EQ(of_file[1]["hidden"].size(), 1u);
  // The most probable ones, of which the first is the one that is filled in.
  const Json top = json_of(succeed({"fill", path("run"), "--protein", given, "--top", "30", "--json"}))[0];
  double sum = 0, last = 1;
  const Json& first = top["hidden"][0];
  ASSERT_EQ(first["top"].size(), 26u);
  EXPECT_EQ(first["top"][0]["token"], first["token"]);
  for (const Json& one : first["top"]) {
    EXPECT_LE(one["probability"].get<double>(), last);
    last = one["probability"].get<double>();
    sum += last;
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_THAT(succeed({"fill", path("run"), "--protein", given, "--top", "2"}).out,
              HasSubstr("most probable"));
  EXPECT_EQ(of_file[2]["filled"], "ACD");
  const Json numbers = json_of(succeed({"fill", path("run"), "--tokens", "0 1 2 _ 4 5 _ 7", "--json"}));
  EXPECT_EQ(numbers[0]["hidden"][0]["token"], result[0]["hidden"][0]["token"]);
}

TEST_F(Encoder, FillSaysWhatTheLibraryPredicts) {
  const auto model = Model::load(path("run"));
  Context context(1);
  const std::vector<std::int32_t> tokens = {-1, 1, 2, -1, 4, 5, -1, 7, 24};
  const Filling expected = model->fill(context, tokens, 1, std::ssize(tokens));
  const Json result = json_of(succeed({"fill", path("run"), "--tokens", "_ 1 2 _ 4 5 _ 7 24", "--json"}))[0];
  std::vector<std::int32_t> filled = tokens;
  ASSERT_EQ(result["hidden"].size(), 3u);
  ASSERT_EQ(expected.positions.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& hidden = result["hidden"][i];
    EXPECT_EQ(hidden["position"], expected.positions[i]);
    EXPECT_EQ(hidden["token"], expected.tokens[i]);
    const float* probabilities = expected.probabilities.view<float>().at(static_cast<std::int64_t>(i));
    const float* most = std::max_element(probabilities, probabilities + 26);
    EXPECT_EQ(hidden["token"], most - probabilities);
    EXPECT_NEAR(hidden["probability"].get<double>(), *most, 1e-6);
    filled[static_cast<std::size_t>(expected.positions[i])] = expected.tokens[i];
  }
  EXPECT_EQ(result["filled"], fmt::format("{}", fmt::join(filled, " ")));
}

TEST_F(Encoder, FillRefusesWhatItCannotFill) {
  refuses(usage, {"fill", path("run")}, {"expected one of --protein, --fasta, --text and --tokens", "got 0"});
  refuses(usage, {"fill", path("run"), "--protein", "A_", "--tokens", "1 _"}, {"expected one of", "got 2"});
  refuses(usage, {"fill", path("run"), "--protein", "A1_"}, {"--protein", "A1_"});
  refuses(usage, {"fill", path("run"), "--text", "a_"}, {"--tokens for a model of 26", "a text"});
  refuses(usage, {"fill", path("run"), "--tokens", "1 x"}, {"got x"});
  refuses(usage, {"fill", path("run"), "--tokens", " "}, {"--tokens", "got none"});
  refuses(usage, {"fill", path("run"), "--tokens", "1 26 _"}, {"0 … 25", "got 26"});  // the mask token
  refuses(usage, {"fill", path("run"), "--tokens", "1 99 _"}, {"[fill] expected tokens in 0", "99"});
  refuses(failed, {"fill", path("run"), "--protein", "AAAAAAAAAAAAAAAAAAAA_"},
          {"expected at most 12 tokens"});
  refuses(usage, {"fill", TinyModels::get().copy(), "--tokens", "1 _"}, {"[fill] expected an encoder"});
}

TEST(Fill, HiddenTokensOfATextAreBytes) {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  const TinyModels& models = TinyModels::get();
  succeed({"train", models.config("text"), "--data", models.learnt(), "--out", run, "--set",
           "model.objective=masked", "--set", "model.dropout=0", "--set", "training.steps=1"});
  const std::string given = "gr\xc3\xbc_ \xe2\x82_!";  // ü, and a € without its last byte
  const Json result = json_of(succeed({"fill", run, "--text", given, "--json"}));
  ASSERT_EQ(result[0]["hidden"].size(), 2u);
  EXPECT_EQ(result[0]["hidden"][0]["position"], 4);
  EXPECT_EQ(result[0]["hidden"][1]["position"], 8);
  for (const Json& hidden : result[0]["hidden"]) {
    const auto token = hidden["token"].get<int>();
    const bool printable = token > 32 && token <= 126;
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned>(token));
    EXPECT_EQ(hidden["written"], printable ? std::string(1, static_cast<char>(token)) : escaped);
  }
  const std::string filled = succeed({"fill", run, "--text", given}).out;
  EXPECT_EQ(filled.substr(0, 4), given.substr(0, 4));
  const Ended plain = succeed({"fill", run, "--text", "nothing"});
  EXPECT_EQ(plain.out, "nothing\n");
  EXPECT_THAT(plain.err, HasSubstr("no token is hidden"));
}

TEST_F(Encoder, EmbeddingsAreMeansOfTheRowsOfTokens) {
  const Strings data = {"--data", path("proteins.fasta"), "--split", "training"};
  const auto embed = [&](const std::string& out, const Strings& more) {
    succeed(joined(joined({"embed", path("run"), "--out", path(out)}, data), more));
    return Safetensors::read(path(out));
  };
  const Safetensors means = embed("means.safetensors", {"--batch", "5"});
  const Safetensors rows = embed("rows.safetensors", {"--per-token", "--threads", "1"});
  const Tensor mean = means.tensor("embeddings"), row = rows.tensor("embeddings");
  const Tensor lengths = rows.tensor("lengths");
  EXPECT_EQ(mean.shape(), (Shape{18, 16}));
  EXPECT_EQ(row.shape(), (Shape{18, 12, 16}));
  EXPECT_FALSE(means.contains("labels"));
  for (std::int64_t i = 0; i < 18; ++i) {
    const std::int64_t length = lengths.view<std::int64_t>()(i);
    EXPECT_GE(length, 5);
    for (std::int64_t k = 0; k < 16; ++k) {
      double sum = 0;
      for (std::int64_t t = 0; t < 12; ++t) sum += row.view<float>()(i, t, k);
      EXPECT_NEAR(sum / static_cast<double>(length), mean.view<float>()(i, k), 1e-5) << i << " " << k;
    }
  }
}

TEST_F(Encoder, RowsOfTokensAreThoseOfTheLibrary) {
  succeed({"embed", path("run"), "--data", path("proteins.fasta"), "--split", "training", "--per-token",
           "--out", path("rows.safetensors")});
  const Safetensors file = Safetensors::read(path("rows.safetensors"));
  const Tensor rows = file.tensor("embeddings"), lengths = file.tensor("lengths");
  ASSERT_EQ(rows.shape(), (Shape{18, 12, 16}));
  const auto model = Model::load(path("run"));
  Context context(1);
  for (std::int64_t i = 0; i < 18; ++i) {
    std::vector<std::int32_t> tokens = protein(static_cast<int>(i + i / 9));  // every tenth one validates
    const std::int64_t length = std::ssize(tokens);
    EXPECT_EQ(lengths.view<std::int64_t>()(i), length);
    tokens.resize(12);
    const Tensor expected = model->hidden(context, tokens, 1, 12, std::span(&length, 1));
    for (std::int64_t t = 0; t < 12; ++t)
      for (std::int64_t k = 0; k < 16; ++k)
        ASSERT_NEAR(rows.view<float>()(i, t, k), t < length ? expected.view<float>()(0, t, k) : 0, 1e-5)
            << "example " << i << ", token " << t;
  }
}

// The class is an input of such a model, and would be all that a probe finds.
TEST(Embed, RowsKnowNothingOfTheLabel) {
  const TemporaryFolder folder;
  const std::string file = (folder / "rows.safetensors").string(), model = TinyModels::get().digits();
  succeed({"embed", model, "--data", "digits", "--examples", "8", "--per-token", "--out", file});
  const Tensor rows = Safetensors::read(file).tensor("embeddings"),
               labels = Safetensors::read(file).tensor("labels");
  const auto of = labels.span<std::int64_t>();
  ASSERT_FALSE(std::ranges::equal(of.subspan(1), of.first(of.size() - 1))) << "examples of one label";
  const auto first = [&](std::int64_t i) { return std::span(rows.view<float>().at(i), 16); };
  for (std::int64_t i = 1; i < 8; ++i) EXPECT_TRUE(std::ranges::equal(first(i), first(0))) << i;
}

TEST_F(Encoder, EmbeddingsNameTheSequenceOfTheFile) {
  // Of 12 tokens in an example the second has 2 pieces, the last one 3.
  folder_.file("long.fasta", ">a\nACD\n>b\nACDEFGHIKLMNPQRST\n>c\nA\n>d\nACDEFGHIKLMNPQRSTVWYACDEFGHIKLMN\n");
  succeed({"embed", path("run"), "--data", path("long.fasta"), "--split", "test", "--out",
           path("long.safetensors")});
  const Safetensors file = Safetensors::read(path("long.safetensors"));
  const Tensor sequences = file.tensor("sequences"), lengths = file.tensor("lengths");
  EXPECT_TRUE(
      std::ranges::equal(sequences.span<std::int64_t>(), std::vector<std::int64_t>{0, 1, 1, 2, 3, 3, 3}));
  EXPECT_TRUE(
      std::ranges::equal(lengths.span<std::int64_t>(), std::vector<std::int64_t>{3, 8, 9, 1, 10, 11, 11}));
}

TEST_F(Encoder, ADecoderOfProteinsWritesAndReadsLetters) {
  succeed({"train", path("proteins.toml"), "--data", path("proteins.fasta"), "--out", path("decoder"),
           "--set", "model.objective=next-token", "training.sample_every=4"});
  const std::string sample = read_file(path("decoder/samples/4.txt"));
  EXPECT_EQ(sample.find_first_not_of("ACDEFGHIKLMNPQRSTVWYOUBJXZ"), std::string::npos) << sample;
  EXPECT_EQ(sample.size(), 12u);
  succeed({"convert", path("decoder"), "--weights", "f32", "--out", path("copy")});
  const Json result = json_of(
      succeed({"generate", path("decoder"), "--prompt", "MKVLLA", "--length", "6", "--json"}))["results"][0];
  std::string expected = "MKVLLA";
  for (const Json& token : result["tokens"])
    expected += "ACDEFGHIKLMNPQRSTVWYOUBJXZ"[token.get<std::size_t>()];
  EXPECT_EQ(expected.size(), 12u);
  EXPECT_EQ(result["text"], expected);
  EXPECT_EQ(succeed({"generate", path("copy"), "--prompt", "MKVLLA", "--length", "6"}).out, expected + "\n");
  refuses(usage, {"generate", path("decoder"), "--prompt", "MK1"}, {"residues", "MK1"});
  // Other tokens of as many values stay numbers.
  std::string tokens(2 * 600, '\0');
  for (std::size_t i = 0; i < tokens.size(); i += 2) tokens[i] = static_cast<char>(i % 26);
  folder_.file("tokens.bin", tokens);
  succeed({"train", path("proteins.toml"), "--data", path("tokens.bin"), "--out", path("numbers"), "--set",
           "model.objective=next-token", "data.kind=tokens", "data.fields=26"});
  EXPECT_TRUE(
      succeed({"generate", path("numbers"), "--prompt", "3 25", "--length", "2"}).out.starts_with("3 25 "));
}

// Row i of a decoder sees the start token and the tokens before i, and no other one.
TEST(Embed, RowsOfADecoderSeeWhatStandsBeforeThem) {
  const TemporaryFolder folder;
  const TinyModels& models = TinyModels::get();
  const auto rows_of_text = [&](const std::string& name, const std::string& text) {
    folder.file(name, text);
    const std::string out = (folder / "rows.safetensors").string();
    succeed({"embed", models.text(), "--data", (folder / name).string(), "--split", "training", "--examples",
             "1", "--per-token", "--out", out});
    return Safetensors::read(out).tensor("embeddings");
  };
  constexpr std::int64_t length = 24, width = 16, changed = 10;
  std::string text(300, 'a');
  const Tensor before = rows_of_text("a.txt", text);
  text[changed] = 'b';
  const Tensor after = rows_of_text("b.txt", text);
  ASSERT_EQ(before.shape(), (Shape{1, length, width}));
  for (std::int64_t t = 0; t < length; ++t) {
    const float *row = before.view<float>().at(0, t), *other = after.view<float>().at(0, t);
    EXPECT_EQ(std::equal(row, row + width, other), t <= changed) << t;
  }
  Context context(1);
  std::vector<std::int32_t> inputs(length, 'a');
  inputs[0] = 256;
  inputs[changed + 1] = 'b';
  const Tensor expected = Model::load(models.text())->hidden(context, inputs, 1, length);
  for (std::int64_t t = 0; t < length; ++t)
    for (std::int64_t k = 0; k < width; ++k)
      ASSERT_NEAR(after.view<float>()(0, t, k), expected.view<float>()(0, t, k), 1e-5) << t;
}

TEST(Embed, RowsOfRealNumbersAreThoseOfTheLibrary) {
  const TemporaryFolder folder;
  std::string csv = "load,wind\n";
  for (int i = 0; i < 60; ++i) csv += fmt::format("{},{}\n", i % 7, 50 + i % 5);
  const std::string data = folder.file("series.csv", csv), run = folder / "run",
                    config = folder.file("series.toml", "[data]\nkind = \"series\"\nlength = 6\n"),
                    out = folder / "rows.safetensors";
  succeed(joined(joined({"train", config, "--data", data, "--out", run}, tiny), {"training.steps=2"}));
  succeed({"embed", run, "--split", "training", "--examples", "4", "--per-token", "--out", out});
  const Tensor rows = Safetensors::read(out).tensor("embeddings");
  const auto model = Model::load(run);
  ASSERT_EQ(rows.shape(), (Shape{4, 6, model->config().width}));
  const auto examples = open_dataset({.kind = "series", .path = data, .length = 6}, Split::training);
  Context context(1);
  for (std::int64_t i = 0; i < 4; ++i) {
    std::vector<float> values(12), targets(12);
    examples->read_values(i * examples->size() / 4, values, targets);
    std::shift_right(values.begin(), values.end(), 2);
    values[0] = values[1] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<std::int32_t> tokens = {model->config().first_input(-1), -1, -1, -1, -1, -1};
    const Tensor expected = model->hidden(context, {.length = 6, .tokens = tokens, .values = values});
    for (std::int64_t t = 0; t < 6; ++t)
      for (std::int64_t k = 0; k < model->config().width; ++k)
        ASSERT_NEAR(rows.view<float>()(i, t, k), expected.view<float>()(0, t, k), 1e-5) << i << ", " << t;
  }
}

TEST(Embed, LabelsStandBesideTheEmbeddings) {
  const TemporaryFolder folder;
  const std::string out = (folder / "digits.safetensors").string();
  const Json result = json_of(succeed(
      {"embed", TinyModels::get().digits(), "--data", "digits", "--examples", "5", "--out", out, "--json"}));
  EXPECT_EQ(result["examples"], 5);
  const Safetensors tensors = Safetensors::read(out);
  EXPECT_EQ(tensors.shape("embeddings"), (Shape{5, 16}));
  EXPECT_EQ(tensors.shape("labels"), (Shape{5}));

  const std::string run = (folder / "run").string();
  succeed({"train", TinyModels::get().config("digits"), "--out", run, "--set", "data.labels=false"});
  succeed({"embed", run, "--data", "digits", "--examples", "5", "--out", out});
  const Safetensors without_classes = Safetensors::read(out);
  const Tensor labels = without_classes.tensor("labels"), expected = tensors.tensor("labels");
  EXPECT_TRUE(std::ranges::equal(labels.span<std::int64_t>(), expected.span<std::int64_t>()));
  const std::string own = (folder / "own.safetensors").string();
  succeed({"embed", run, "--examples", "3", "--out", own});  // of the run's own data
  EXPECT_EQ(Safetensors::read(own).shape("labels"), (Shape{3}));

  const std::string text = folder.file("text.txt", std::string(2000, 'a')), of_text = folder / "text";
  succeed({"train", TinyModels::get().config("text"), "--data", text, "--out", of_text});
  const Strings embed = {"embed", of_text, "--examples", "1", "--out", own};
  EXPECT_EQ(succeed(embed).err.find("have changed"), std::string::npos);
  folder.file("text.txt", std::string(1000, 'a'));
  EXPECT_NE(succeed(embed).err.find("warning: the data of the run have changed"), std::string::npos);
  refuses(failed, {"embed", TinyModels::get().digits(), "--data", "digits", "--out", "/no/such/folder/x"},
          {"/no/such/folder"});
}

}  // namespace
}  // namespace linnet
