#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "kernels/samples.h"
#include "support/contexts.h"

namespace linnet::kernels {
namespace {

TEST(Embedding, LooksUpAndAddsBack) {
  for (const std::int64_t d : {1, 63, 64, 65, 200}) {
    for (const std::int64_t rows : {0, 1, 500}) {
      Tensor table = normal({7, d}, 1), dy = normal({rows, d}, 2), y = Tensor::of<float>({rows, d});
      std::vector<std::int32_t> ids;
      for (std::int64_t i = 0; i < rows; ++i) ids.push_back(static_cast<std::int32_t>(i * i % 7));
      embedding_forward(any_context(), y.view<float>(), table.view<float>(), ids);
      Tensor expected = table.clone();
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < d; ++j) {
          ASSERT_EQ(y.view<float>()(i, j), table.view<float>()(ids[static_cast<std::size_t>(i)], j));
          expected.view<float>()(ids[static_cast<std::size_t>(i)], j) += dy.view<float>()(i, j);
        }
      }
      for (const int threads : {1, 2, 3}) {
        Context context(threads);
        Tensor dtable = table.clone();
        embedding_backward(context, dtable.view<float>(), dy.view<float>(), ids);
        EXPECT_TRUE(same_bits(dtable.span<float>(), expected.span<float>()));
      }
    }
  }
}

TEST(add_rows, AddsToEveryBatchEntryAndSumsBack) {
  for (const std::int64_t batch : {0, 1, 3}) {
    for (const std::int64_t length : {0, 1, 65}) {
      Tensor y = normal({batch, length, 33}, 1), rows = normal({length, 33}, 2), before = y.clone(),
             sums = rows.clone();
      Tensor expected = rows.clone();
      add_rows(any_context(), y.view<float>(), rows.view<float>());
      add_rows_backward(any_context(), sums.view<float>(), before.view<float>());
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t i = 0; i < length; ++i)
          for (std::int64_t j = 0; j < 33; ++j) {
            ASSERT_EQ(y.view<float>()(b, i, j), before.view<float>()(b, i, j) + rows.view<float>()(i, j));
            expected.view<float>()(i, j) += before.view<float>()(b, i, j);
          }
      EXPECT_TRUE(same_bits(sums.span<float>(), expected.span<float>()));
    }
  }
}

TEST(SinusoidalPositions, FollowTheFormulaNearTheStart) {
  for (const std::int64_t d : {1, 2, 7, 64, 257}) {
    Tensor rows = Tensor::of<float>({100, d});
    sinusoidal_positions(any_context(), rows.view<float>(), 3);
    for (std::int64_t i = 0; i < 100; ++i) {
      for (std::int64_t j = 0; j < d; ++j) {
        const double angle =
            static_cast<double>(3 + i) / std::pow(10000.0, 2.0 * (j / 2) / static_cast<double>(d));
        ASSERT_NEAR(rows.view<float>()(i, j), j % 2 == 0 ? std::sin(angle) : std::cos(angle), 1e-7)
            << i << ", " << j;
      }
    }
  }
}

// With 10000^(2j/d) a power of ten, 2^40 + i over it is known without a rounded frequency.
TEST(SinusoidalPositions, StayAccurateFarOut) {
  const std::int64_t first = std::int64_t{1} << 40;
  Tensor rows = Tensor::of<float>({5, 8});
  sinusoidal_positions(any_context(), rows.view<float>(), first);
  // 2π to 120 bits: the multiple of it nearest to the position is taken away in pieces that are exact.
  const double two_pi[3] = {6.28318530717958623, 2.44929359829470635e-16, -5.98954050886949e-33};
  for (std::int64_t i = 0; i < 5; ++i) {
    std::int64_t power = 1;
    for (std::int64_t j = 0; j < 8; j += 2, power *= 10) {
      const double p = static_cast<double>(first + i);
      const double q = static_cast<double>((first + i) / power),
                   rest = static_cast<double>((first + i) % power);
      ASSERT_EQ(q * static_cast<double>(power) + rest, p);
      const double turns = std::nearbyint(p / static_cast<double>(power) / two_pi[0]);
      double angle = std::fma(-turns, two_pi[0], q);
      angle -= turns * two_pi[1];
      angle -= turns * two_pi[2];
      angle += rest / static_cast<double>(power);
      EXPECT_NEAR(rows.view<float>()(i, j), std::sin(angle), 1e-7) << i << ", " << j;
      EXPECT_NEAR(rows.view<float>()(i, j + 1), std::cos(angle), 1e-7) << i << ", " << j;
    }
  }
}

TEST(SinusoidalPositions, ContinueWhereTheyStopped) {
  Tensor all = Tensor::of<float>({50, 30}), end = Tensor::of<float>({20, 30});
  sinusoidal_positions(any_context(), all.view<float>(), 0);
  sinusoidal_positions(any_context(), end.view<float>(), 30);
  EXPECT_TRUE(same_bits(dense_copy(all.view<float>().slice(0, 30, 50)), end.span<float>()));
}

}  // namespace
}  // namespace linnet::kernels
