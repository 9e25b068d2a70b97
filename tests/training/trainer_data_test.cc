// A trainer on examples of a dataset.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "model/access.h"
#include "support/contexts.h"
#include "support/runs.h"

namespace linnet {
namespace {

using testing::HasSubstr;

/// Examples of two columns of real numbers, of which each step predicts those of two steps.
class NumberRows final : public Dataset {
 public:
  explicit NumberRows(double scale = 1) : scale_(scale) {}
  std::int64_t size() const override { return 11; }
  std::int64_t length() const override { return 6; }
  std::int64_t vocabulary() const override { return 0; }
  std::int64_t columns() const override { return 2; }
  std::int64_t target_columns() const override { return 4; }
  ColumnStatistics column_statistics() const override { return {{scale_, 2}, {3 * scale_, 1}}; }
  ColumnStatistics target_statistics() const override { return {{scale_, 2, scale_, 2}, {scale_, 1, 1, 1}}; }
  std::vector<std::string> column_names() const override { return {"load", "wind"}; }
  std::int64_t read(std::int64_t, std::span<std::int32_t>, std::span<std::int32_t>) const override {
    return -1;
  }
  void read_values(std::int64_t index, std::span<float> values, std::span<float> targets) const override {
    const auto number = [&](std::size_t i) {
      return static_cast<float>(scale_ * std::sin(index + 0.7 * static_cast<double>(i)));
    };
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = number(i);
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = number(i / 4 * 2 + i % 4);
  }

 private:
  double scale_;
};

/// What a trainer knows after the updates of a run.
void expect_same_parameters(const Trainer& trainer, const std::filesystem::path& folder) {
  Folder saved("saved");
  trainer.save(saved / "checkpoint");
  EXPECT_EQ(weights_of(saved / "checkpoint"), weights_of(folder));
  EXPECT_EQ(read_file(saved / "checkpoint/optimiser.safetensors"),
            read_file(folder / "checkpoints/12/optimiser.safetensors"));
}

/// The statistics of real numbers.
std::vector<float> scale_of(const Trainer& trainer) {
  const auto model = trainer.model();
  const Tensor values = values_of(*model);
  std::vector<float> scale;
  for (const ParameterTable::Row& row : network_of(*model).table().rows())
    if (row.name.starts_with("columns."))
      scale.insert(scale.end(), values.span<float>().data() + row.place.offset(),
                   values.span<float>().data() + row.place.offset() + row.count);
  return scale;
}

ModelConfig of_numbers(ModelConfig config) {
  config.vocabulary = 0;
  config.columns = 2;
  config.targets = 4;
  config.patch = 1;
  return config;
}

TEST(Trainer, TakesTheExamplesOfADatasetAsARunDoes) {
  ModelConfig masked = trained_config();
  masked.objective = Objective::masked;
  const NumberRows numbers;
  const auto expect_same = [](const ModelConfig& config, const Dataset& data) {
    const TrainingOptions options = tiny_options();
    Folder folder;
    train(any_context(), config, options, data, data, folder.path(), false);
    Trainer in_order(any_context(), config, options), chosen(any_context(), config, options);
    in_order.set_data(data);
    chosen.set_data(data);
    std::int64_t next = 0;
    for (std::int64_t step = 0; step < options.steps; ++step) {
      in_order.step(data);
      std::vector<std::int64_t> indices;
      for (std::int64_t i = 0; i < options.batch * options.accumulate; ++i)
        indices.push_back(shuffled_index(static_cast<std::uint64_t>(options.seed), next++, data.size()));
      chosen.step(data, indices);
    }
    expect_same_parameters(in_order, folder.path());
    expect_same_parameters(chosen, folder.path());
    EXPECT_EQ(in_order.model()->assets().columns, Model::load(folder.path())->assets().columns);
  };
  expect_same(trained_config(), training_set());
  expect_same(masked, training_set());
  expect_same(of_numbers(trained_config()), numbers);
}

TEST(Trainer, TakesExamplesThatAreChosen) {
  // Those of a selection, by their places in it.
  Trainer whole(any_context(), trained_config(), tiny_options()),
      part(any_context(), trained_config(), tiny_options());
  const auto selected = select_examples(std::make_shared<Counting>(17, 6, 5), {16, 3, 3, 9});
  for (int step = 0; step < 3; ++step) {
    whole.step(training_set(), std::vector<std::int64_t>{9, 16, 3});
    part.step(*selected, std::vector<std::int64_t>{3, 0, 2});
  }
  EXPECT_EQ(values_of(whole), values_of(part));
}

TEST(Trainer, KeepsTheScaleOfAnInitialModel) {
  const NumberRows numbers, wider(10);
  const ModelConfig config = of_numbers(trained_config());
  Trainer first(any_context(), config, tiny_options());
  first.set_data(numbers);
  Trainer next(any_context(), config, tiny_options(), first.model()),
      fresh(any_context(), config, tiny_options());
  next.set_data(wider);
  fresh.set_data(wider);
  EXPECT_EQ(values_of(next), values_of(first));
  EXPECT_NE(values_of(fresh), values_of(first));
}

TEST(Trainer, KeepsTheScaleOfACheckpoint) {
  const NumberRows numbers, wider(10);
  const ModelConfig config = of_numbers(trained_config());
  Trainer first(any_context(), config, tiny_options()), next(any_context(), config, tiny_options());
  first.set_data(numbers);
  first.step(numbers);
  Folder folder;
  first.save(folder / "checkpoint");
  next.restore(folder / "checkpoint");
  next.set_data(wider);
  EXPECT_EQ(values_of(next), values_of(first));

  // Also before the first update.
  Trainer begun(any_context(), config, tiny_options());
  begun.set_data(numbers);
  begun.save(folder / "begun");
  next.restore(folder / "begun");
  next.set_data(wider);
  EXPECT_EQ(values_of(next), values_of(begun));
}

TEST(Trainer, TakesTheScaleThatAnInitialModelDoesNotHave) {
  const NumberRows numbers, wider(10);
  const ModelConfig config = of_numbers(trained_config());
  ModelConfig nearer = config;
  nearer.targets = 0;  // those of one step
  Trainer other(any_context(), nearer, tiny_options()), fresh(any_context(), config, tiny_options());
  other.set_columns({{1, 2}, {3, 4}}, {{1, 2}, {3, 4}});
  fresh.set_data(wider);
  for (const auto& initial :
       {adapt_model(*other.model(), config, 1), std::shared_ptr<const Model>(Model::random(config, 5))}) {
    Trainer trainer(any_context(), config, tiny_options(), initial);
    trainer.set_data(wider);
    EXPECT_EQ(scale_of(trainer), scale_of(fresh));
  }
}

TEST(Trainer, TakesAScaleThatWasNotSetFromItsFirstExamples) {
  const NumberRows numbers, wider(10);
  const ModelConfig config = of_numbers(trained_config());
  Trainer set(any_context(), config, tiny_options()), not_set(any_context(), config, tiny_options()),
      given(any_context(), config, tiny_options());
  set.set_data(numbers);
  given.set_columns({{1, 2}, {3, 4}}, {{1, 2, 3, 4}, {3, 4, 5, 6}});
  const std::vector<float> before = scale_of(given);
  for (Trainer* trainer : {&set, &not_set, &given}) trainer->step(numbers);
  EXPECT_EQ(values_of(set), values_of(not_set));
  EXPECT_EQ(scale_of(given), before);
  not_set.step(wider);
  EXPECT_EQ(scale_of(set), scale_of(not_set));
}

TEST(Trainer, TakesBatchesInOrderWhateverOthersTook) {
  Trainer mixed(any_context(), trained_config(), tiny_options()),
      chosen(any_context(), trained_config(), tiny_options());
  const std::vector<std::int64_t> one = {3};
  std::vector<std::int64_t> second;
  for (std::int64_t i = 6; i < 12; ++i)
    second.push_back(
        shuffled_index(static_cast<std::uint64_t>(tiny_options().seed), i, training_set().size()));
  mixed.step(training_set(), one);
  mixed.step(training_set());
  chosen.step(training_set(), one);
  chosen.step(training_set(), second);
  EXPECT_EQ(values_of(mixed), values_of(chosen));
}

TEST(Trainer, RefusesExamplesThatItCannotTake) {
  Trainer trainer(any_context(), trained_config(), tiny_options());
  const std::vector<std::int64_t> none, beyond = {0, 17}, before = {-1};
  EXPECT_THAT(error_of([&] { trainer.step(training_set(), none); }), HasSubstr("at least 1 example, got 0"));
  EXPECT_THAT(error_of([&] { trainer.step(training_set(), beyond); }), HasSubstr("0 … 16, got 17"));
  EXPECT_THAT(error_of([&] { trainer.step(training_set(), before); }), HasSubstr("0 … 16, got -1"));
  EXPECT_THAT(error_of([&] { trainer.step(Counting(17, 7, 5)); }), HasSubstr("model.length = 7"));
  EXPECT_THAT(error_of([&] { trainer.set_data(Counting(17, 6, 6)); }), HasSubstr("model.vocabulary"));
  EXPECT_THAT(error_of([&] { trainer.set_data(NumberRows()); }), HasSubstr("fields of tokens"));
  TrainingOptions shifting = tiny_options();
  shifting.transpose = 2;
  Trainer numbers(any_context(), of_numbers(trained_config()), shifting);
  EXPECT_THAT(error_of([&] { numbers.step(NumberRows()); }), HasSubstr("training.transpose = 0"));
  EXPECT_EQ(trainer.steps(), 0);
}

}  // namespace
}  // namespace linnet
