#include "layers/embedding.h"

#include <gtest/gtest.h>

#include "linnet/error.h"
#include "support/contexts.h"
#include "support/layer_check.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 21;
const std::pair<Positions, const char*> all_positions[] = {{Positions::learned, "learned"},
                                                           {Positions::sinusoidal, "sinusoidal"},
                                                           {Positions::rotary, "rotary"},
                                                           {Positions::none, "none"}};

struct Made {
  ParameterTable table;
  std::unique_ptr<Embedding> embedding;
  Tensor values;

  Made(std::int64_t tokens, std::int64_t width, std::int64_t length, Positions positions) {
    embedding = std::make_unique<Embedding>(table, "embedding",
                                            Embedding::Shape{tokens, width, length, positions, false});
    values = random_values(table, seed);
    embedding->pack(any_context(), values.span<float>());
  }
};

TEST(Embedding, MatchesReferenceWithGradients) {
  for (const auto& [positions, name] : all_positions)
    for (const std::int64_t width : {1, 2, 7, 16})
      for (const std::int64_t length : {1, 6}) {
        SCOPED_TRACE(testing::Message() << name << ", width " << width << ", length " << length);
        Made made(5, width, length, positions);
        const auto ids = random_tokens(3 * length, 5, seed);
        std::vector<float> y(static_cast<std::size_t>(3 * length * width));
        made.embedding->forward(any_context(), view(y, {3, length, width}), ids, 0);
        const reference::Parameters at = by_name(made.table, made.values.span<float>());
        const auto expected = [&, kind = name](const reference::Parameters& p) {
          return reference::embedding(ids, length, width, p, "embedding", kind).values;
        };
        EXPECT_LT(relative_error(y, expected(at)), 1e-6);

        const auto dy = normals(static_cast<std::int64_t>(y.size()), seed);
        Tensor gradients = Tensor::of<float>({made.table.size()});
        for (int time = 0; time < 2; ++time)
          made.embedding->backward(any_context(), view(dy, {3, length, width}), ids, gradients.span<float>());
        const Loss loss = [&](const reference::Parameters& p) {
          const auto rows = expected(p);
          double sum = 0;
          for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * rows[i];
          return sum;
        };
        expect_gradients(by_name(made.table, gradients.span<float>(), 0.5), differences(loss, at));
        expect_padding_is_zero(made.table, gradients.span<float>());
      }
}

TEST(Embedding, BeginsAtAnyPositionThatExists) {
  for (const auto& [positions, name] : all_positions) {
    SCOPED_TRACE(name);
    Made made(5, 6, 10, positions);
    const auto ids = random_tokens(8, 5, seed);
    std::vector<float> y(8 * 6);
    made.embedding->forward(any_context(), view(y, {2, 4, 6}), ids, 6);
    const auto expected =
        reference::embedding(ids, 4, 6, by_name(made.table, made.values.span<float>()), "embedding", name, 6);
    EXPECT_LT(relative_error(y, expected.values), 1e-6);
  }
}

TEST(Embedding, SinusoidsGoOnFarBeyondTheTrainedLength) {
  for (const std::int64_t width : {6, 9}) {
    Made made(5, width, 10, Positions::sinusoidal);
    const auto parameters = by_name(made.table, made.values.span<float>());
    for (const std::int64_t first : {std::int64_t{9}, std::int64_t{10}, std::int64_t{999'998},
                                     std::int64_t{1} << 30, (std::int64_t{1} << 40) - 4}) {
      SCOPED_TRACE(testing::Message() << "position " << first << ", width " << width);
      const auto ids = random_tokens(4, 5, seed);
      const auto expected = reference::embedding(ids, 4, width, parameters, "embedding", "sinusoidal", first);
      std::vector<float> y(static_cast<std::size_t>(4 * width)), stepped(y.size());
      made.embedding->forward(any_context(), view(y, {1, 4, width}), ids, first);
      EXPECT_LT(relative_error(y, expected.values), 1e-6);
      const std::vector<std::int64_t> positions = {first, first + 1, first + 2, first + 3};
      made.embedding->step(any_context(), view(stepped, {4, width}), ids, positions);
      EXPECT_LT(relative_error(stepped, expected.values), 1e-6);
      EXPECT_NO_THROW(made.embedding->check_position(first));
    }
  }
}

TEST(Embedding, StepGivesTheRowsOfForward) {
  for (const auto& [positions, name] : all_positions)
    for (const std::int64_t width : {1, 7, 32}) {
      SCOPED_TRACE(testing::Message() << name << ", width " << width);
      Made made(9, width, 20, positions);
      const auto ids = random_tokens(20, 9, seed);
      std::vector<float> y(static_cast<std::size_t>(20 * width)), stepped(y.size());
      made.embedding->forward(any_context(), view(y, {1, 20, width}), ids, 0);
      std::vector<std::int32_t> reversed_ids(ids.rbegin(), ids.rend());
      std::vector<std::int64_t> reversed;
      for (std::int64_t p = 19; p >= 0; --p) reversed.push_back(p);
      made.embedding->step(any_context(), view(stepped, {20, width}), reversed_ids, reversed);
      for (std::int64_t p = 0; p < 20; ++p)
        EXPECT_TRUE(same_bits(std::span(y).subspan(static_cast<std::size_t>(p * width), width),
                              std::span(stepped).subspan(static_cast<std::size_t>((19 - p) * width), width)))
            << "position " << p;
    }
}

TEST(Embedding, RefusesLearnedPositionsBeyondTheTrainedLength) {
  Made made(5, 4, 10, Positions::learned);
  std::vector<float> y(3 * 4);
  const std::vector<std::int32_t> ids = {0, 1, 2};
  EXPECT_NO_THROW(made.embedding->forward(any_context(), view(y, {1, 3, 4}), ids, 7));
  EXPECT_THROW(made.embedding->forward(any_context(), view(y, {1, 3, 4}), ids, 8), Error);
  const std::vector<std::int64_t> outside = {0, 10, 1};
  EXPECT_THROW(made.embedding->step(any_context(), view(y, {3, 4}), ids, outside), Error);
  EXPECT_NO_THROW(made.embedding->check_position(9));
  try {
    made.embedding->check_position(10);
    ADD_FAILURE() << "position 10 of a model of 10 positions was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("10"), std::string::npos) << error.what();
  }
}

TEST(Embedding, RefusesIdsOutsideTheTable) {
  for (const auto& [positions, name] : all_positions) {
    Made made(5, 4, 10, positions);
    std::vector<float> y(2 * 4);
    const std::vector<std::int64_t> at = {0, 1};
    for (const std::int32_t bad :
         {-1, 5, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
      const std::vector<std::int32_t> ids = {0, bad};
      EXPECT_THROW(made.embedding->forward(any_context(), view(y, {1, 2, 4}), ids, 0), Error) << bad;
      EXPECT_THROW(made.embedding->step(any_context(), view(y, {2, 4}), ids, at), Error) << bad;
    }
  }
}

}  // namespace
}  // namespace linnet
