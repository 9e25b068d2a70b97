#include <fmt/core.h>

#include <algorithm>

#include "base/random.h"
#include "base/threads.h"
#include "bench.h"
#include "checks.h"
#include "linnet/attention.h"
#include "report.h"

namespace linnet {
namespace {

struct Arguments {
  std::string family = "linear,softmax", feature_map = "elu", mask = "causal", length = "1024:4096",
              batch = "1", dim = "64", pass = "forward,training";
  std::int64_t heads = 8, value_dim = 0;
  BenchOptions bench;
};

struct Row {
  std::string family, feature_map, mask, pass;
  std::int64_t batch, length, heads, head_dim, value_dim;
};

Tensor random_tensor(const Shape& shape, std::uint32_t stream) {
  Tensor tensor = Tensor::of<float>(shape);
  const Random random(1, Draw::test, stream);
  const std::span<float> values = tensor.span<float>();
  // Sums of uniform numbers: normal enough to measure with, and fast for a million tokens.
  parallel_blocks(tensor.size(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto words = random.block(static_cast<std::uint64_t>(i));
      double sum = 0;
      for (const std::uint32_t word : words) sum += word * 0x1p-32 - 0.5;
      values[i] = static_cast<float>(sum * 1.732);
    }
  });
  return tensor;
}

/// Least FLOPs, docs/performance.md: what has to be multiplied, whatever the algorithm.
double least_flops(const Row& row) {
  const double queries = static_cast<double>(row.batch * row.length * row.heads);
  const double e = static_cast<double>(row.head_dim), m = static_cast<double>(row.value_dim);
  const bool training = row.pass == "training";
  if (row.family == "softmax") {
    const double visible =
        row.mask == "causal" ? (static_cast<double>(row.length) + 1) / 2 : static_cast<double>(row.length);
    return queries * visible * (training ? 8 * e + 6 * m : 2 * (e + m));
  }
  const double f = static_cast<double>(find_feature_map(row.feature_map)->features(row.head_dim));
  return queries * f * m * (training ? 14 : 4);
}

/// Every input and output once: q, k, v, out; in training also their gradients, and the inputs and out a
/// second time.
double least_bytes(const Row& row) {
  const double rows = static_cast<double>(row.batch * row.length * row.heads) * sizeof(float);
  const double forward = rows * static_cast<double>(2 * row.head_dim + 2 * row.value_dim);
  return row.pass == "training" ? 3 * forward : forward;
}

Json measure(const Row& row, double seconds) {
  AttentionOptions options;
  options.family = find_family(row.family);
  options.feature_map = find_feature_map(row.feature_map);
  const auto attention = make_attention(options);
  const Shape keys = {row.batch, row.length, row.heads, row.head_dim};
  const Shape values = {row.batch, row.length, row.heads, row.value_dim};
  const Tensor q = random_tensor(keys, 0), k = random_tensor(keys, 1), v = random_tensor(values, 2);
  const Tensor grad_out = random_tensor(values, 3);
  Tensor out = Tensor::of<float>(values), normaliser = Tensor::of<float>({row.batch, row.length, row.heads});
  const AttentionInputs inputs{q.view<float>(), k.view<float>(), v.view<float>(),
                               row.mask == "causal" ? Mask::causal() : Mask::full()};
  const bool training = row.pass == "training";
  Tensor dq, dk, dv;
  if (training) {
    dq = Tensor::of<float>(keys);
    dk = Tensor::of<float>(keys);
    dv = Tensor::of<float>(values);
  }
  reset_peak_memory();
  const std::vector<double> times = time_calls(
      [&] {
        attention->forward({out.view<float>(), training ? normaliser.view<float>() : View<float>()}, inputs);
        if (training)
          attention->backward({dq.view<float>(), dk.view<float>(), dv.view<float>()}, grad_out.view<float>(),
                              inputs, out.view<float>(), normaliser.view<float>());
      },
      seconds);

  Json json = bench_row("attention");
  const Ceiling limits = ceiling();
  json["time_ms"] = time_summary(times);
  const double median = json["time_ms"]["median"];
  const double floor_ms = 1e3 * std::max(least_flops(row) / (1e9 * limits.gemm_gflops),
                                         least_bytes(row) / (1e9 * limits.copy_gbs));
  json["family"] = row.family;
  json["feature_map"] = row.family == "linear" ? Json(row.feature_map) : Json(nullptr);
  json["mask"] = row.mask;
  json["pass"] = row.pass;
  json["batch"] = row.batch;
  json["length"] = row.length;
  json["heads"] = row.heads;
  json["head_dim"] = row.head_dim;
  json["value_dim"] = row.value_dim;
  json["gflops"] = least_flops(row) / (1e6 * median);
  json["floor_ms"] = floor_ms;
  json["times_floor"] = median / floor_ms;
  return json;
}

void run(const Arguments& arguments) {
  const auto families = family_list("--family", arguments.family),
             maps = name_list("--feature-map", arguments.feature_map);
  for (const std::string& map : maps) find_feature_map(map);
  const auto dims = number_list("--dim", arguments.dim), batches = number_list("--batch", arguments.batch),
             lengths = number_list("--length", arguments.length);
  const auto passes = name_list("--pass", arguments.pass);
  Json rows = Json::array();
  std::vector<int> threads = arguments.bench.threads;
  if (threads.empty()) threads = {thread_count()};
  for (const int count : threads) {
    set_thread_count(count);
    ceiling();
    for (const std::string& family : families) {
      for (const std::string& map : family == "linear" ? maps : std::vector<std::string>{"elu"})
        for (const std::int64_t dim : dims)
          for (const std::int64_t batch : batches)
            for (const std::int64_t length : lengths)
              for (const std::string& pass : passes) {
                fmt::print(stderr, "{} {} d {} batch {} length {} {}\n", family, arguments.mask, dim, batch,
                           length, pass);
                rows.push_back(measure({family, map, arguments.mask, pass, batch, length, arguments.heads,
                                        dim, arguments.value_dim == 0 ? dim : arguments.value_dim},
                                       arguments.bench.seconds));
              }
    }
  }
  if (arguments.bench.json) {
    fmt::print("{}\n", rows.dump(2));
    return;
  }
  const Ceiling limits = ceiling();
  fmt::print("This machine: {:.0f} GFLOP/s dense f32, {:.1f} GB/s copied, {}\n\n", limits.gemm_gflops,
             limits.copy_gbs, rows.front()["isa"].get<std::string>());
  print_table(rows, {"threads", "family", "feature_map", "mask", "pass", "batch", "length", "heads",
                     "head_dim", "time_ms.median", "gflops", "floor_ms", "times_floor"});
}

}  // namespace

void add_bench_attention(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      bench.add_subcommand("attention", "Time of one attention against the machine's ceilings");
  command->footer(
      "floor_ms is the larger of the least FLOPs at the dense ceiling and the least bytes at the copy "
      "ceiling.\n"
      "Example: linnet bench attention --family linear,softmax --length 512:16384 --pass forward");
  command->add_option("--family", arguments->family, "families, linear,softmax")->capture_default_str();
  command->add_option("--feature-map", arguments->feature_map, "feature maps of linear")
      ->capture_default_str();
  command->add_option("--mask", arguments->mask, "causal or full")
      ->check(one_of({"causal", "full"}))
      ->capture_default_str();
  command->add_option("--pass", arguments->pass, "forward, training (forward and backward)")
      ->capture_default_str();
  command->add_option("--length", arguments->length, "tokens: a list or a doubling range")
      ->capture_default_str();
  command->add_option("--batch", arguments->batch, "sequences")->capture_default_str();
  command->add_option("--heads", arguments->heads, "heads")
      ->check(whole(1, most_count))
      ->capture_default_str();
  command->add_option("--dim", arguments->dim, "head sizes")->capture_default_str();
  command->add_option("--value-dim", arguments->value_dim, "size of value heads; as --dim by default")
      ->check(whole(1, most_count));
  arguments->bench.add_to(*command);
  command->callback([=] {
    for (const std::string& pass : name_list("--pass", arguments->pass))
      if (pass != "forward" && pass != "training")
        throw CLI::ValidationError("--pass: expected forward or training, got " + pass);
    run(*arguments);
  });
}

}  // namespace linnet
