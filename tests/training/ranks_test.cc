// Ranks that train together, as threads of this process: the same bits as one rank alone, one sentence where
// something is wrong.
#include "support/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>

#include "support/runs.h"
#include "training/gradient_sum.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Task {
  ModelConfig config;
  TrainingOptions options = {};
  const Dataset* training = &training_set();
  const Dataset* validation = &validation_set();
};

std::vector<std::string> train_ranks(const Task& task, const fs::path& folder, int count, int threads = 1,
                                     bool resume = false, std::int64_t stop_after = 0) {
  return on_ranks(count, [&](Communicator& rank) {
    Context context(threads);
    const TrainingCallbacks callbacks = stop_after > 0 ? stopping_after(stop_after) : TrainingCallbacks{};
    train(context, task.config, task.options, *task.training, *task.validation, folder, resume, callbacks,
          nullptr, nullptr, &rank);
  });
}

/// Weights, moments and metrics of a run, without what depends on time.
std::string results_of(const fs::path& folder) {
  std::string all = weights_of(folder) + weights_of(folder / "best");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "checkpoints"))
    all += read_file(entry.path() / "optimiser.safetensors");
  for (Json line : metrics_of(folder)) {
    line.erase("seconds");
    line.erase("tokens_per_second");
    all += line.dump() + "\n";
  }
  return all;
}

/// A model whose parameters fill several buckets, and what training has: warm-up, dropout, clipping.
Task task_of(std::int64_t passes) {
  Task task;
  task.config = trained_config();
  task.config.layers = 3;
  task.config.width = 24;
  task.config.feed_forward = 50;
  task.options = tiny_options();
  task.options.steps = 4;
  task.options.batch = 2;
  task.options.accumulate = passes;
  task.options.clip = 0.5;
  task.options.evaluate_every = 3;
  task.options.evaluate_examples = 0;
  task.options.keep_checkpoints = 1;
  return task;
}

void expect_same_results(const Task& task, const std::vector<int>& numbers, int threads = 1) {
  Folder alone("alone");
  EXPECT_THAT(train_ranks(task, alone.path(), 1), ElementsAre());
  const std::string expected = results_of(alone.path());
  for (const int ranks : numbers) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, " << task.options.accumulate << " passes, "
                                    << threads << " threads, " << describe(task.config));
    Folder folder("ranks");
    EXPECT_THAT(train_ranks(task, folder.path(), ranks, threads), ElementsAre());
    EXPECT_TRUE(results_of(folder.path()) == expected);
  }
}

TEST(Ranks, EndInTheBitsOfOneRank) {
  for (const std::int64_t passes : {4, 5, 7}) expect_same_results(task_of(passes), {2, 3, 4});
}

TEST(Ranks, EndInTheBitsOfOneThread) { expect_same_results(task_of(5), {1, 2, 3}, 2); }

TEST(Ranks, EndInTheSameBitsForEveryKindOfModelAndPass) {
  Task tied = task_of(4);
  tied.config.head = OutputDistribution::categorical;
  tied.config.tied_output = true;
  expect_same_results(tied, {3});

  Task shared = task_of(4);
  shared.config.attention.family = Family::linformer;
  shared.config.attention.linformer.sharing = ProjectionSharing::layerwise;
  shared.config.attention.linformer.rank = 3;
  shared.config.objective = Objective::masked;
  expect_same_results(shared, {3});

  Task narrow = task_of(4);
  narrow.options.precision = WeightType::bf16;
  expect_same_results(narrow, {3});

  Task recomputed = task_of(4);
  recomputed.options.recompute = true;
  expect_same_results(recomputed, {3});

  Task segmented = task_of(4);
  segmented.options.segment = 4;
  expect_same_results(segmented, {3});
  segmented.options.truncate = true;
  expect_same_results(segmented, {3});
}

TEST(Ranks, EndInTheSameBitsForEncodersAndRealNumbers) {
  DataOptions data;
  data.kind = "reverse";
  data.examples = 200;
  data.length = 12;
  data.source_length = 8;
  const Datasets pairs = open_datasets(data);
  Task task = task_of(4);
  task.training = pairs.training.get();
  task.validation = pairs.validation.get();
  task.config.vocabulary = pairs.training->vocabulary();
  task.config.length = pairs.training->length();
  task.config.head = OutputDistribution::categorical;
  task.config.encoder_layers = 2;
  task.config.source_length = pairs.training->source_length();
  task.config.source_vocabulary = pairs.training->source_vocabulary();
  task.options.evaluate_examples = 7;
  expect_same_results(task, {2, 3});
}

TEST(Ranks, MoreOfThemResumeWhatFewerBegan) {
  const Task task = task_of(5);
  Folder whole("whole");
  train_ranks(task, whole.path(), 1);
  Folder stopped("stopped");
  EXPECT_THAT(train_ranks(task, stopped.path(), 3, 1, false, 1), ElementsAre());
  EXPECT_THAT(train_ranks(task, stopped.path(), 2, 1, true, 2), ElementsAre());
  EXPECT_THAT(train_ranks(task, stopped.path(), 1, 1, true, 3), ElementsAre());
  EXPECT_THAT(train_ranks(task, stopped.path(), 5, 1, true), ElementsAre());
  EXPECT_TRUE(results_of(stopped.path()) == results_of(whole.path()));
}

TEST(Ranks, AreRefusedWhereThereAreMoreThanPasses) {
  Folder folder;
  EXPECT_THAT(train_ranks(task_of(3), folder / "run", 4),
              ElementsAre(AllOf(HasSubstr("expected at most training.accumulate = 3 ranks"),
                                HasSubstr("got 4"), HasSubstr("lower training.batch"))));
  EXPECT_FALSE(fs::exists(folder / "run"));
}

TEST(Ranks, AreRefusedWhereTheyDifferNamingTheRank) {
  const Counting other(17, 6, 5, 0, true);
  const auto sentences = [&](const std::function<void(Task&)>& change) {
    Folder folder;
    const std::vector<std::string> found = on_ranks(3, [&](Communicator& rank) {
      Task task = task_of(4);
      if (rank.rank() == 2) change(task);
      Context context(1);
      train(context, task.config, task.options, *task.training, *task.validation, folder / "run", false, {},
            nullptr, nullptr, &rank);
    });
    EXPECT_FALSE(fs::exists(folder / "run"));
    return found;
  };
  EXPECT_THAT(sentences([](Task& task) { task.options.seed = 9; }),
              ElementsAre(AllOf(HasSubstr("training.seed = 1 as rank 0"), HasSubstr("got 9 on rank 2"))));
  EXPECT_THAT(sentences([](Task& task) { task.options.evaluate_every = 2; }),
              ElementsAre(AllOf(HasSubstr("training.evaluate_every"), HasSubstr("rank 2"))));
  EXPECT_THAT(sentences([](Task& task) { task.config.dropout = 0.5; }),
              ElementsAre(AllOf(HasSubstr("model.dropout"), HasSubstr("rank 2"))));
  EXPECT_THAT(sentences([&](Task& task) { task.training = &other; }),
              ElementsAre(AllOf(HasSubstr("training data"), HasSubstr("rank 2"))));
  EXPECT_THAT(sentences([&](Task& task) { task.validation = &training_set(); }),
              ElementsAre(AllOf(HasSubstr("validation data"), HasSubstr("rank 2"))));
}

TEST(Ranks, StopTogetherWhereOneIsAskedTo) {
  const Task task = task_of(4);
  Folder folder;
  std::atomic<int> stopped = 0;
  on_ranks(3, [&](Communicator& rank) {
    Context context(1);
    std::int64_t updates = 0;
    TrainingCallbacks callbacks;
    callbacks.should_stop = [&] { return ++updates == 2 && rank.rank() == 1; };
    stopped += train(context, task.config, task.options, *task.training, *task.validation, folder.path(),
                     false, callbacks, nullptr, nullptr, &rank)
                   .step == 2;
  });
  EXPECT_EQ(stopped, 3);
  EXPECT_TRUE(fs::exists(folder / "checkpoints/2"));
}

TEST(Ranks, EndWithTheSentenceOfTheFirstWhereTheFolderIsTaken) {
  Folder folder;
  write_file_atomically(folder / "thesis.txt", "precious");
  EXPECT_THAT(train_ranks(task_of(4), folder.path(), 3),
              ElementsAre(AllOf(HasSubstr("new or empty folder"), HasSubstr(folder.path().string()))));
}

TEST(Ranks, EndWithOneSentenceWhereALossIsNotFinite) {
  const Task task = task_of(4);
  Tensor values = random_values(Network(task.config).table(), 1);
  for (float& value : values.span<float>()) value *= 1e20f;
  const std::shared_ptr<const Model> initial = make_model(task.config, std::move(values));
  Folder folder;
  EXPECT_THAT(on_ranks(3,
                       [&](Communicator& rank) {
                         Context context(1);
                         train(context, task.config, task.options, *task.training, *task.validation,
                               folder.path(), false, {}, nullptr, initial, &rank);
                       }),
              ElementsAre(AllOf(HasSubstr("finite"), HasSubstr("the last good checkpoint is " +
                                                               (folder / "checkpoints" / "0").string()))));
}

TEST(Ranks, EndWhereOneOfThemFailsBetweenUpdates) {
  const Task task = task_of(4);
  for (int rank = 0; rank < 3; ++rank) {
    Folder folder;
    EXPECT_THAT(on_ranks(3,
                         [&](Communicator& own) {
                           Context context(1);
                           TrainingCallbacks callbacks;
                           callbacks.should_stop = [&]() -> bool {
                             if (own.rank() == rank) throw Error("the disk is full");
                             return false;
                           };
                           train(context, task.config, task.options, *task.training, *task.validation,
                                 folder.path(), false, callbacks, nullptr, nullptr, &own);
                         }),
                ElementsAre(HasSubstr("the disk is full")));
  }
}

/// The sum of passes [first, last) by definition, each pass being one number.
float node(const std::vector<float>& passes, std::size_t first, std::size_t size) {
  if (size == 1) return passes[first];
  const std::size_t half = size / 2;
  const float left = node(passes, first, half);
  return first + half < passes.size() ? left + node(passes, first + half, half) : left;
}

// The others wait for its partial sums, or have sent theirs.
TEST(GradientSum, EndsOnAllRanksWhereAPassFailsOnOne) {
  for (int failing = 0; failing < 3; ++failing) {
    const auto sentences = on_ranks(3, [&](Communicator& rank) {
      Context context(1);
      std::vector<float> gradients(20000);
      GradientSum sum(rank, gradients, 6);
      sum.run(context, [&](std::int64_t, std::span<float>, const GradientsComplete& complete) {
        if (complete) complete(10000);
        if (complete && rank.rank() == failing) throw Error("a pass without memory");
      });
    });
    EXPECT_THAT(sentences, ElementsAre(HasSubstr("a pass without memory"))) << failing;
  }
}

TEST(GradientSum, AddsInTheTreeOverAllPasses) {
  constexpr std::int64_t size = 20000;
  for (const std::int64_t passes : {1, 2, 3, 6, 11, 16, 21})
    for (int count = 1; count <= std::min<std::int64_t>(passes, 7); ++count) {
      SCOPED_TRACE(testing::Message() << passes << " passes on " << count << " ranks");
      const auto number = [&](std::int64_t pass, std::int64_t i) {
        return 1 / static_cast<float>(1 + (pass * 7919 + i * 104729) % 9973);
      };
      std::vector<float> expected;
      for (std::int64_t i = 0; i < size; ++i) {
        std::vector<float> of_passes;
        for (std::int64_t pass = 0; pass < passes; ++pass) of_passes.push_back(number(pass, i));
        expected.push_back(node(of_passes, 0, std::bit_ceil(of_passes.size())));
      }
      EXPECT_THAT(on_ranks(count,
                           [&](Communicator& rank) {
                             Context context(1);
                             std::vector<float> gradients(size);
                             GradientSum sum(rank, gradients, passes);
                             for (int update = 0; update < 2; ++update) {
                               sum.run(context, [&](std::int64_t pass, std::span<float> buffer,
                                                    const GradientsComplete& complete) {
                                 for (std::int64_t i = size; i-- > 0;) {
                                   buffer[static_cast<std::size_t>(i)] += number(pass, i);
                                   if (complete && i % 3000 == 0) complete(i);
                                 }
                               });
                               if (gradients != expected) throw Error("another sum");
                             }
                           }),
                  ElementsAre());
    }
}

TEST(GradientSum, TakesNoMemoryForOnePassOnOneRank) {
  EXPECT_EQ(GradientSum::bytes(100, 1, 1), 0);
  EXPECT_EQ(GradientSum::bytes(100, 4, 1), 200) << "two beside the gradient itself";
  EXPECT_EQ(GradientSum::bytes(100, 4, 4), 75) << "the parts of three others";
}

}  // namespace
}  // namespace linnet
