// docs/format.md ends with a forward pass in NumPy. This test extracts it and compares it with the library,
// so that the page and the code say the same.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "io/file.h"
#include "io/options.h"
#include "model/config.h"
#include "model/transformer.h"
#include "support/contexts.h"
#include "support/folder.h"
#include "support/models.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 1811;

/// Exit status of a command line of the shell.
int status_of(const std::string& command) {
  const int ended = std::system(command.c_str());
  return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

/// The last fenced block of Python in the page.
std::string program_of(const std::string& page) {
  const std::string fence = "\n```python\n";
  const std::size_t begin = page.rfind(fence);
  if (begin == std::string::npos) return "";
  const std::size_t first = begin + fence.size();
  return page.substr(first, page.find("\n```\n", first) + 1 - first);
}

/// log P [tokens, vocabulary] of every value at every position, from the library.
std::vector<double> log_probabilities(const Model& model, std::span<const std::int32_t> tokens,
                                      std::int64_t label) {
  const ModelConfig& config = model.config();
  std::vector<std::int32_t> inputs = {config.first_input(label)};
  inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
  const OutputHead& head = network_of(model).head();
  Transformer transformer(network_of(model));
  const std::int64_t rows = std::ssize(tokens);
  const View<const float> hidden = transformer.forward(any_context(), inputs, 1, rows);
  Tensor parameters = Tensor::of<float>({rows, head.outputs()});
  head.forward(any_context(), parameters.view<float>(), hidden.reshape({rows, config.width}));
  std::vector<double> result;
  std::vector<float> logits(static_cast<std::size_t>(config.vocabulary));
  for (std::int64_t row = 0; row < rows; ++row) {
    head.logits(any_context(), View<float>(logits.data(), {config.vocabulary}),
                View<const float>(parameters.view<float>().at(row), {head.outputs()}));
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - logits[0]);
    for (const float logit : logits) result.push_back(static_cast<double>(logit) - logits[0] - std::log(sum));
  }
  return result;
}

/// The rows of the table of `group`, "model", "attention" or "image", by the key that each begins with.
std::map<std::string, std::vector<std::string>> rows_of(const std::string& page, const std::string& group) {
  std::map<std::string, std::vector<std::string>> rows;
  const std::size_t begin = page.find("\n`" + group + "`");
  if (begin == std::string::npos) return rows;
  std::istringstream lines(page.substr(page.find("\n|", begin) + 1));
  for (std::string line; std::getline(lines, line) && line.starts_with('|');) {
    if (!line.starts_with("| `")) continue;  // the names of the columns
    std::istringstream text(line);
    std::vector<std::string> cells;
    for (std::string cell; std::getline(text, cell, '|');) {
      std::erase_if(cell, [](char letter) { return letter == ' ' || letter == '`'; });
      cells.push_back(cell);
    }
    EXPECT_TRUE(rows.try_emplace(cells[1], cells).second) << group << "." << cells[1] << " has two rows";
  }
  return rows;
}

TEST(FormatDocumentTables, ListEveryKeyWithItsTypeAndDefault) {
  const std::string page = read_file(LINNET_SOURCE_FOLDER "/docs/format.md");
  ModelConfig config;
  Options options;
  add_options(options, config);
  std::map<std::string, std::map<std::string, std::vector<std::string>>> tables;
  for (const char* group : {"model", "attention", "image"}) tables[group] = rows_of(page, group);
  for (const Options::Row& row : options.rows()) {
    const std::size_t dot = row.key.find('.');
    const auto cells = tables[row.key.substr(0, dot)].extract(row.key.substr(dot + 1));
    ASSERT_FALSE(cells.empty()) << row.key << " has no row";
    ASSERT_GE(cells.mapped().size(), 4u) << row.key;
    const std::string &type = cells.mapped()[2], &value = cells.mapped()[3];
    EXPECT_EQ(type, row.type) << row.key;
    if (row.type == "text" || row.type == "boolean")
      EXPECT_EQ(value, row.value) << row.key;
    else
      EXPECT_EQ(std::stod(value), std::stod(row.value)) << row.key;
  }
  EXPECT_EQ(tables.size(), 3u);
  for (const auto& [group, left] : tables)
    for (const auto& [key, cells] : left) ADD_FAILURE() << group << "." << key << " is no key";
}

TEST(FormatDocumentTables, NameEveryTensor) {
  const std::string page = read_file(LINNET_SOURCE_FOLDER "/docs/format.md");
  const auto expect_named = [&](const ModelConfig& config) {
    const Network network(config);
    for (const auto& row : network.table().rows()) {
      std::string name = row.name;
      // The layers of an encoder have the names of the others behind a prefix.
      if (name.starts_with("encoder.layers.")) {
        EXPECT_NE(page.find("`encoder.layers.L.…`"), std::string::npos);
        EXPECT_EQ(name.find("cross"), std::string::npos) << name;
        EXPECT_FALSE(name.ends_with(".decay")) << name;
        name.erase(0, name.find('.') + 1);
      }
      if (name.starts_with("layers.")) name.replace(0, name.find('.', 7), "layers.L");
      if (const auto at = name.find("fields."); at != std::string::npos)
        name.replace(at, name.find('.', at + 7) - at, "fields.f");
      // A weight and its bias share a line where their shapes are the same.
      const bool bias = name.ends_with(".bias");
      const std::string weight = bias ? name.substr(0, name.size() - 4) + "weight`" : name + "`";
      if (name.starts_with("encoder."))  // in a sentence
        EXPECT_NE(page.find("`" + weight + (bias ? " and `.bias`" : "")), std::string::npos) << row.name;
      else
        EXPECT_TRUE(page.find("\n| `" + name + "`") != std::string::npos ||
                    (bias && page.find("\n| `" + weight + ", `.bias`") != std::string::npos))
            << row.name;
    }
  };
  ModelConfig config = tiny_config();
  config.attention.linear.feature_map = "favor-trig";
  expect_named(config);
  config.width = 8 * config.heads;
  config.attention.linear.directions = Directions::hadamard;
  expect_named(config);
  config = tiny_config();
  config.attention.linear.decay = Decay::learned;
  expect_named(config);
  expect_named(with_other_blocks(tiny_config(), "linear,local"));
  config = tiny_config();
  config.objective = Objective::masked;
  config.attention.family = Family::linformer;
  config.attention.linformer.rank = 2;
  expect_named(config);
  config = tiny_config();
  config.encoder_layers = 2;
  config.source_length = 4;
  config.attention.linear.decay = Decay::learned;
  expect_named(config);
  config.attention.linear.decay = Decay::none;
  config.attention.linear.feature_map = "favor-trig";
  expect_named(config);
  config.width = 8 * config.heads;
  config.attention.linear.directions = Directions::hadamard;
  expect_named(config);
  config = tiny_config();
  config.fields = "5,3";
  config.columns = 2;
  expect_named(config);
  config.fields = "";
  config.objective = Objective::classify;
  config.classes = 2;
  expect_named(config);
}

class FormatDocument : public testing::Test {
 protected:
  void SetUp() override {
    // The interpreter of the path may be another one than the one that Debian's packages belong to.
    for (const char* python : {"python3", "/usr/bin/python3"})
      if (python_.empty() && status_of(fmt::format("{} -c 'import numpy' > /dev/null 2>&1", python)) == 0)
        python_ = python;
    if (python_.empty()) GTEST_SKIP() << "python3 with numpy is missing (scripts/setup.sh installs it)";
    const std::string program = program_of(read_file(LINNET_SOURCE_FOLDER "/docs/format.md"));
    ASSERT_NE(program.find("def forward("), std::string::npos) << program;
    write_file_atomically(folder_ / "forward.py", program);
  }

  /// The program reads `model_folder` and gives what `model` does.
  void expect_equal(const Model& model, const std::filesystem::path& model_folder,
                    std::span<const std::int32_t> tokens, std::int64_t label) {
    std::string text;
    for (const std::int32_t token : tokens) text += fmt::format("{}\n", token);
    write_file_atomically(folder_ / "tokens.txt", text);
    const std::string out = (folder_ / "out.txt").string();
    ASSERT_EQ(status_of(fmt::format("{} '{}' '{}' '{}' {} > '{}'", python_, (folder_ / "forward.py").string(),
                                    model_folder.string(), (folder_ / "tokens.txt").string(),
                                    std::max<std::int64_t>(label, 0), out)),
              0);
    std::istringstream numbers(read_file(out));
    const std::vector<double> expected = log_probabilities(model, tokens, label);
    const std::vector<float> scores = model.score(any_context(), tokens, label);
    const auto vocabulary = static_cast<std::size_t>(model.config().vocabulary);
    double largest = 0, value = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(numbers >> value) << "value " << i << " of " << expected.size();
      largest = std::max(largest, std::abs(value - expected[i]) / std::max(1.0, std::abs(expected[i])));
      ASSERT_TRUE(std::isfinite(value) && std::isfinite(expected[i])) << value << " and " << expected[i];
      const std::size_t row = i / vocabulary;
      if (i % vocabulary == static_cast<std::size_t>(tokens[row])) {
        EXPECT_NEAR(value, scores[row], 1e-4 * std::max(1.0, std::abs(value))) << "token " << row;
      }
    }
    EXPECT_FALSE(numbers >> value) << "expected no more than " << expected.size() << " values";
    EXPECT_LT(largest, 1e-4);
  }

  Folder folder_;
  std::string python_;  ///< an interpreter that has numpy
};

TEST_F(FormatDocument, ComputesTheShippedModel) {
  const std::filesystem::path path = LINNET_SOURCE_FOLDER "/models/digits";
  const auto model = Model::load(path);
  expect_equal(*model, path, random_tokens(model->config().length, model->config().vocabulary, seed), 3);
}

TEST_F(FormatDocument, LimitsLogScales) {
  ModelConfig config = tiny_config();
  config.head = OutputDistribution::logistics;
  config.mixtures = 1;
  Tensor values = random_values(Network(config).table(), seed);
  fill(Network(config).table(), values.span<float>(), "head.bias", -9);
  const auto model = make_model(config, std::move(values));
  model->save(folder_ / "model");
  expect_equal(*model, folder_ / "model", random_tokens(config.length, config.vocabulary, seed), -1);
}

TEST_F(FormatDocument, ComputesRandomModels) {
  std::vector<ModelConfig> configs;
  const auto add = [&](const auto& change) {
    ModelConfig config = tiny_config();
    change(config);
    configs.push_back(config);
  };
  add([](ModelConfig&) {});
  add([](ModelConfig& config) { config.head = OutputDistribution::logistics; });
  add([](ModelConfig& config) {
    config.head = OutputDistribution::logistics;
    config.vocabulary = 16;
    config.classes = 3;
    config.mixtures = 4;
    config.norm = NormOrder::post;
    config.positions = Positions::sinusoidal;
    config.activation = Activation::gelu_tanh;
    config.attention.linear.alpha = 0.4;
  });
  add([](ModelConfig& config) {  // a picture of 4 × 3 pixels in colour
    config.head = OutputDistribution::logistics;
    config.vocabulary = 256;
    config.image_height = 4;
    config.image_width = 3;
    config.image_channels = 3;
    config.length = 36;
  });
  add([](ModelConfig& config) {
    config.tied_output = true;
    config.positions = Positions::none;
    config.activation = Activation::relu;
    config.attention.linear.decay = Decay::learned;
  });
  add([](ModelConfig& config) {
    config.attention.linear.decay = Decay::fixed;
    config.attention.linear.shortest_memory = 2;
    config.attention.linear.longest_memory = 20;
    config.attention.epsilon = 0.01;
    config.positions = Positions::sinusoidal;
  });
  add([](ModelConfig& config) {
    config = with_other_blocks(config, "linear,linear");
    config.attention.linear.decay = Decay::learned;
  });
  add([](ModelConfig& config) {
    config.attention.normalise = Normalise::none;
    config.length = 40;
  });
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const ModelConfig& config = configs[i];
    SCOPED_TRACE(describe(config) + ", decay " +
                 std::to_string(static_cast<int>(config.attention.linear.decay)));
    const auto model = random_model(config, seed + i);
    const std::filesystem::path path = folder_ / fmt::format("model{}", i);
    model->save(path);
    // Positions that are not learned go on beyond the trained length.
    const std::int64_t tokens =
        config.positions == Positions::learned ? config.length : 3 * config.length + 1;
    expect_equal(*model, path, random_tokens(tokens, config.vocabulary, seed + i),
                 config.classes > 0 ? 2 : -1);
  }
}

}  // namespace
}  // namespace linnet
