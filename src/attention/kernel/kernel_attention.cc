#include "attention/kernel/kernel_attention.h"

#include <algorithm>
#include <cmath>

#include "attention/arguments.h"
#include "attention/kernel/tile_products.h"
#include "attention/rounds.h"
#include "attention/tiles/wide.h"
#include "attention/visible.h"
#include "base/parallel.h"
#include "base/workspace.h"
#include "linnet/similarity.h"

namespace linnet {
namespace {

using kernel::padded;

constexpr const char* kOperation = "kernel attention";

// Queries and keys of a tile: its similarities, 64 KB, stay in the second-level cache with its rows.
constexpr std::int64_t kTile = 128;

/// Rows first … first + count of a head as f32, filled up with zeros to whole lines of `width` and to
/// padded(count) rows.
void read_rows(float* to, std::int64_t width, ConstFloatView x, std::int64_t b, std::int64_t first,
               std::int64_t h, std::int64_t count) {
  const InputRows rows = rows_of(x, b, h);
  for (std::int64_t i = 0; i < count; ++i, to += width) {
    read_row(to, rows, first + i);
    std::fill_n(to + rows.columns, width - rows.columns, 0.0f);
  }
  std::fill_n(to, (padded(count) - count) * width, 0.0f);
}

/// A tile of pairs of one head: rows in f32 and what the queries see of the keys.
class Tile {
 public:
  Tile(Context& own, const AttentionInputs& inputs, const AttentionSizes& sizes, const Similarity& similarity,
       std::int64_t b, std::int64_t h)
      : own_(own),
        inputs_(inputs),
        sizes_(sizes),
        similarity_(similarity),
        b_(b),
        h_(h),
        head_width(padded(sizes.head_dim)),
        value_width(padded(sizes.value_dim)),
        workspace_(own) {
    query = take(head_width);
    key = take(head_width);
    value = take(value_width);
    weights = take(kTile);
    seen_ = workspace_.array<std::uint8_t>(kTile * kTile).data();
  }

  /// A number of columns for each row of a tile.
  float* take(std::int64_t width) { return workspace_.take(static_cast<std::size_t>(kTile * width)); }

  void read_queries(std::int64_t first, std::int64_t count) {
    first_query = first;
    queries = count;
    read_rows(query, head_width, inputs_.query, b_, first, h_, count);
  }

  /// Goes to `count` keys from key `first` on. False where nothing is seen.
  bool read_keys(const Sights& sights, std::int64_t first, std::int64_t count) {
    first_key = first;
    keys = count;
    const Visible own = sights.own(b_, first_query);
    if (own.interval[0].begin >= first + count || own.interval[queries - 1].end <= first) return false;
    partial = own.boolean != nullptr || own.interval[queries - 1].begin > first ||
              own.interval[0].end < first + count;
    if (partial) {
      inputs_.mask.fill({seen_, {queries, keys}}, b_, first_query, first, sizes_.keys);
      const std::int64_t pairs = std::count(seen_, seen_ + queries * keys, std::uint8_t{1});
      if (pairs == 0) return false;
      partial = pairs < queries * keys;
    }
    read_rows(key, head_width, inputs_.key, b_, first, h_, count);
    read_rows(value, value_width, inputs_.value, b_, first, h_, count);
    return true;
  }

  bool sees(std::int64_t i, std::int64_t j) const { return !partial || seen_[i * keys + j] != 0; }

  View<const float> query_rows() const { return {query, {queries, sizes_.head_dim}, {head_width, 1}}; }
  View<const float> key_rows() const { return {key, {keys, sizes_.head_dim}, {head_width, 1}}; }
  View<float> pairs(float* x) const { return {x, {queries, keys}, {kTile, 1}}; }

  /// Fills `weights` with the similarities, 0 for what is not seen, and adds them up.
  void ask(double* sums) {
    similarity_.forward(own_, pairs(weights), query_rows(), key_rows());
    clear_unseen(weights);
    for (std::int64_t i = 0; i < queries; ++i)
      std::fill(weights + i * kTile + keys, weights + i * kTile + padded(keys), 0.0f);
    if (!kernel::add_row_sums(sums, weights, kTile, queries, padded(keys))) find_refused();
  }

  void clear_unseen(float* x) const {
    for (std::int64_t i = 0; partial && i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j)
        if (!sees(i, j)) x[i * kTile + j] = 0;
  }

  /// Whether products with the tile's zeros would carry NaN to what the mask keeps apart.
  bool keeps_apart(const float* gradient) const {
    return partial && !(all_finite(query, queries * head_width) && all_finite(key, keys * head_width) &&
                        all_finite(value, keys * value_width) &&
                        (gradient == nullptr || all_finite(gradient, queries * value_width)));
  }

 private:
  Context& own_;
  const AttentionInputs& inputs_;
  const AttentionSizes& sizes_;
  const Similarity& similarity_;
  std::int64_t b_, h_;

 public:
  const std::int64_t head_width, value_width;
  std::int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;
  bool partial = false;
  float *query = nullptr, *key = nullptr, *value = nullptr;  ///< rows of head_width and value_width
  float* weights = nullptr;                                  ///< [queries][kTile]

 private:
  /// Throws for the first number below 0 or not finite that finite rows gave.
  void find_refused() const {
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {
        const float s = weights[i * kTile + j];
        if (s >= 0 && std::isfinite(s)) continue;
        if (!all_finite(query + i * head_width, head_width) || !all_finite(key + j * head_width, head_width))
          continue;
        fail(kOperation,
             "expected the similarity {} to be at least 0 and finite, got {} of query {} and key {} (batch "
             "entry {}, head {})",
             similarity_.name(), s, first_query + i, first_key + j, b_, h_);
      }
    }
  }

  Workspace workspace_;
  std::uint8_t* seen_ = nullptr;
};

class KernelAttention final : public Attention {
 public:
  explicit KernelAttention(const AttentionOptions& options)
      : similarity_(options.kernel.similarity),
        normalise_(options.kernel.normalise),
        epsilon_(options.kernel.epsilon) {}

  void forward(Context& context, const AttentionOutputs& outputs,
               const AttentionInputs& inputs) const override;
  void backward(Context& context, const AttentionGradients& gradients, ConstFloatView grad_out,
                const AttentionInputs& inputs, ConstFloatView out,
                View<const float> normaliser) const override;

  std::unique_ptr<State> make_state(std::int64_t slots, const HeadShape& shape, std::int64_t capacity,
                                    std::span<float>) const override {
    check_make_state(kOperation, slots, shape, capacity);
    refuse_state();
  }

  std::int64_t state_floats(const HeadShape&, std::int64_t) const override { refuse_state(); }

  void step(Context&, View<float>, View<const float>, View<const float>, View<const float>, State&,
            std::span<const std::int64_t>, View<const float>) const override {
    refuse_state();
  }

 private:
  [[noreturn]] static void refuse_state() {
    fail(kOperation,
         "expected a family with a recurrent form (linear with a feature map of the similarity, or softmax "
         "with "
         "its cache), got kernel: no state sums up any similarity");
  }

  static void refuse(const AttentionInputs& inputs, const State* final) {
    refuse_decay(kOperation, inputs.decay);
    if (inputs.initial != nullptr || final != nullptr) refuse_state();
  }

  /// What the sum of a query's similarities is divided by; 1 where that is 0, as what is divided is then.
  float denominator(double sum) const {
    if (normalise_ == Normalise::none) return 1.0f;
    const float total = static_cast<float>(sum + static_cast<double>(epsilon_));
    return total == 0 ? 1.0f : total;
  }

  void forward_block(Context& own, const AttentionOutputs& outputs, const AttentionInputs& inputs,
                     const AttentionSizes& sizes, const Sights& sights, std::int64_t b, std::int64_t h,
                     std::int64_t first) const;

  std::shared_ptr<const Similarity> similarity_;
  Normalise normalise_;
  float epsilon_;
};

void KernelAttention::forward_block(Context& own, const AttentionOutputs& outputs,
                                    const AttentionInputs& inputs, const AttentionSizes& sizes,
                                    const Sights& sights, std::int64_t b, std::int64_t h,
                                    std::int64_t first) const {
  Tile tile(own, inputs, sizes, *similarity_, b, h);
  float* sums = tile.take(tile.value_width);
  double totals[kTile] = {};
  std::fill_n(sums, kTile * tile.value_width, 0.0f);
  tile.read_queries(first, std::min(kTile, sizes.queries - first));
  const Mask::Interval seen = sights.reach(b, first, tile.queries);
  for (std::int64_t key = seen.begin / kTile * kTile; key < seen.end; key += kTile) {
    if (!tile.read_keys(sights, key, std::min(kTile, sizes.keys - key))) continue;
    tile.ask(totals);
    if (tile.keeps_apart(nullptr)) {
      for (std::int64_t i = 0; i < tile.queries; ++i)
        for (std::int64_t j = 0; j < tile.keys; ++j)
          for (std::int64_t m = 0; tile.sees(i, j) && m < sizes.value_dim; ++m)
            sums[i * tile.value_width + m] +=
                tile.weights[i * kTile + j] * tile.value[j * tile.value_width + m];
      continue;
    }
    kernel::multiply_add(sums, tile.value_width, tile.weights, kTile, tile.value, tile.value_width,
                         tile.queries, sizes.value_dim, tile.keys);
  }
  for (std::int64_t i = 0; i < tile.queries; ++i) {
    const float divisor = denominator(totals[i]);
    float* row = sums + i * tile.value_width;
    for (std::int64_t m = 0; m < sizes.value_dim; ++m) row[m] /= divisor;
    write_row(rows_of(outputs.out, b, h), first + i, row);
    if (outputs.normaliser.rank() != 0) outputs.normaliser(b, first + i, h) = divisor;
  }
}

void KernelAttention::forward(Context& context, const AttentionOutputs& outputs,
                              const AttentionInputs& inputs) const {
  const AttentionSizes sizes = check_forward(kOperation, outputs, inputs);
  refuse(inputs, outputs.final);
  const Sights sights(context, inputs.mask, sizes);
  const std::int64_t blocks = (sizes.queries + kTile - 1) / kTile, entries = sizes.batch * sizes.heads;
  // The last blocks, which see the most keys under a causal mask, come first: threads end together.
  parallel_for(context, entries * blocks, [&](Context& own, std::int64_t item) {
    forward_block(own, outputs, inputs, sizes, sights, item % entries / sizes.heads, item % sizes.heads,
                  (blocks - 1 - item / entries) * kTile);
  });
}

// With g_i = dO_i / denominator_i: dV = Sᵀ g and dS_ij = g_i · (v_j − out_i), the last term from the
// denominator, where there is one.
void KernelAttention::backward(Context& context, const AttentionGradients& gradients, ConstFloatView grad_out,
                               const AttentionInputs& inputs, ConstFloatView out,
                               View<const float> normaliser) const {
  if (gradients.initial.rank() != 0 || gradients.final.rank() != 0) refuse_state();
  const AttentionSizes sizes = check_backward(kOperation, gradients, grad_out, inputs, out, normaliser);
  refuse(inputs, nullptr);
  const WideOutput grad_query = WideOutput::zeros(context, gradients.query),
                   grad_key = WideOutput::zeros(context, gradients.key),
                   grad_value = WideOutput::zeros(context, gradients.value);
  const Sights sights(context, inputs.mask, sizes);
  Rounds(sights, sizes, kTile, kTile)
      .run(context, [&](Context& own, const Rounds::Meeting& meeting, const Rounds::Meeting*) {
        const auto& [b, h, first, keys] = meeting;
        Tile tile(own, inputs, sizes, *similarity_, b, h);
        const std::int64_t width = tile.value_width;
        tile.read_queries(first, std::min(kTile, sizes.queries - first));
        if (!tile.read_keys(sights, keys.begin, keys.end - keys.begin)) return;
        double totals[kTile] = {};
        tile.ask(totals);

        float* gradient = tile.take(width);
        float* room = tile.take(width);  // out, then the gradient of value
        read_rows(gradient, width, grad_out, b, first, h, tile.queries);
        read_rows(room, width, out, b, first, h, tile.queries);
        float corrections[kTile];
        for (std::int64_t i = 0; i < tile.queries; ++i) {
          const float divisor = normaliser(b, first + i, h);
          double correction = 0;
          for (std::int64_t m = 0; m < sizes.value_dim; ++m) {
            gradient[i * width + m] /= divisor;
            correction += static_cast<double>(gradient[i * width + m]) * room[i * width + m];
          }
          corrections[i] = normalise_ == Normalise::sum ? static_cast<float>(correction) : 0.0f;
        }
        float* value_columns = tile.take(width);
        float* grad_weights = tile.take(kTile);
        kernel::transpose(value_columns, kTile, tile.value, width, tile.keys, sizes.value_dim);
        kernel::multiply(grad_weights, kTile, gradient, width, value_columns, kTile, tile.queries, tile.keys,
                         sizes.value_dim);
        for (std::int64_t i = 0; i < tile.queries; ++i)
          for (std::int64_t j = 0; j < tile.keys; ++j) grad_weights[i * kTile + j] -= corrections[i];
        tile.clear_unseen(grad_weights);

        const View<float> dq = {grad_query.view().at(b, first, h),
                                {tile.queries, sizes.head_dim},
                                {grad_query.view().stride(1), 1}};
        const View<float> dk = {grad_key.view().at(b, keys.begin, h),
                                {tile.keys, sizes.head_dim},
                                {grad_key.view().stride(1), 1}};
        if (tile.keeps_apart(gradient)) {
          for (std::int64_t i = 0; i < tile.queries; ++i) {
            for (std::int64_t j = 0; j < tile.keys; ++j) {
              if (!tile.sees(i, j)) continue;
              const std::int64_t at = i * kTile + j;
              for (std::int64_t m = 0; m < sizes.value_dim; ++m)
                grad_value.view()(b, keys.begin + j, h, m) += tile.weights[at] * gradient[i * width + m];
              similarity_->backward(own, dq.slice(0, i, i + 1), dk.slice(0, j, j + 1),
                                    {grad_weights + at, {1, 1}}, {tile.weights + at, {1, 1}},
                                    tile.query_rows().slice(0, i, i + 1), tile.key_rows().slice(0, j, j + 1));
            }
          }
          return;
        }
        kernel::multiply_transposed(room, width, tile.weights, kTile, gradient, width, tile.keys,
                                    sizes.value_dim, tile.queries);
        for (std::int64_t j = 0; j < tile.keys; ++j)
          for (std::int64_t m = 0; m < sizes.value_dim; ++m)
            grad_value.view()(b, keys.begin + j, h, m) += room[j * width + m];
        similarity_->backward(own, dq, dk, tile.pairs(grad_weights), tile.pairs(tile.weights),
                              tile.query_rows(), tile.key_rows());
      });
  for (const WideOutput* sum : {&grad_query, &grad_key, &grad_value}) sum->finish(context);
}

}  // namespace

std::unique_ptr<Attention> make_kernel_attention(const AttentionOptions& options) {
  if (options.kernel.similarity == nullptr) fail<UsageError>(kOperation, "expected a similarity, got none");
  if (!std::isfinite(options.kernel.epsilon) || options.kernel.epsilon < 0)
    fail<UsageError>(kOperation, "expected a finite epsilon of at least 0, got {}", options.kernel.epsilon);
  check_normalise(kOperation, options.kernel.normalise);
  return std::make_unique<KernelAttention>(options);
}

}  // namespace linnet
