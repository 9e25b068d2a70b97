#include <fmt/core.h>

#include <cmath>

#include "base/fail.h"
#include "base/threads.h"
#include "checks.h"
#include "commands.h"
#include "io/safetensors.h"
#include "linnet/attention.h"
#include "report.h"

namespace linnet {
namespace {

struct Arguments {
  std::string in, out, family = "linear", feature_map = "elu", mask = "full", compare, normalise = "sum";
  double alpha = 1, epsilon = 1e-6, scale = 0;
  std::vector<std::int64_t> key_lengths;
  bool gradients = false, json = false;
  int threads = 0;
};

Tensor read_input(const Safetensors& file, const std::string& path, const std::string& name) {
  if (!file.contains(name)) fail("attend", "expected a tensor {} in {}, got none", name, path);
  Tensor tensor = file.tensor(name);
  if (tensor.dtype() != DType::f32 || tensor.shape().size() != 4)
    fail("attend", "expected {} in {} to be f32 [batch, length, heads, dim], got {} {}", name, path,
         name_of(tensor.dtype()), to_string(tensor.shape()));
  return tensor;
}

AttentionOptions options_of(const Arguments& arguments, const std::string& family) {
  AttentionOptions options;
  options.family = find_family(family);
  options.feature_map = find_feature_map(arguments.feature_map, static_cast<float>(arguments.alpha));
  options.normalise = arguments.normalise == "none" ? Normalise::none : Normalise::sum;
  options.epsilon = static_cast<float>(arguments.epsilon);
  options.scale = static_cast<float>(arguments.scale);
  return options;
}

struct Attended {
  Tensor out, normaliser;
};

Attended attend(const Attention& attention, const AttentionInputs& inputs) {
  const std::int64_t batch = inputs.query.extent(0), length = inputs.query.extent(1),
                     heads = inputs.query.extent(2);
  Attended result{Tensor::of<float>({batch, length, heads, inputs.value.extent(3)}),
                  Tensor::of<float>({batch, length, heads})};
  attention.forward({result.out.view<float>(), result.normaliser.view<float>()}, inputs);
  return result;
}

/// ‖a − b‖ / ‖b‖ and the largest |a − b|.
Json difference(std::span<const float> a, std::span<const float> b) {
  double error = 0, norm = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    error += d * d;
    norm += static_cast<double>(b[i]) * b[i];
    largest = std::max(largest, std::abs(d));
  }
  return {{"relative_error", norm > 0 ? std::sqrt(error / norm) : std::sqrt(error)},
          {"largest_error", largest}};
}

void run(const Arguments& arguments) {
  if (arguments.threads > 0) set_thread_count(arguments.threads);
  const Safetensors file = Safetensors::read(arguments.in);
  require_file_path(arguments.out);
  Tensor q = read_input(file, arguments.in, "q"), k = read_input(file, arguments.in, "k"),
         v = read_input(file, arguments.in, "v");
  Mask mask = arguments.mask == "causal" ? Mask::causal() : Mask::full();
  if (!arguments.key_lengths.empty()) mask = mask.with_key_lengths(arguments.key_lengths);
  const AttentionInputs inputs{q.view<float>(), k.view<float>(), v.view<float>(), mask};
  const auto attention = make_attention(options_of(arguments, arguments.family));
  const auto other_attention =
      arguments.compare.empty() ? nullptr : make_attention(options_of(arguments, arguments.compare));
  const auto start = std::chrono::steady_clock::now();
  const Attended attended = attend(*attention, inputs);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  std::vector<NamedTensor> outputs = {{"out", DType::f32, attended.out.shape(), attended.out.raw()}};
  Tensor dq, dk, dv;
  if (arguments.gradients) {
    Tensor grad_out = read_input(file, arguments.in, "grad_out");
    dq = Tensor::of<float>(q.shape());
    dk = Tensor::of<float>(k.shape());
    dv = Tensor::of<float>(v.shape());
    attention->backward({dq.view<float>(), dk.view<float>(), dv.view<float>()}, grad_out.view<float>(),
                        inputs, attended.out.view<float>(), attended.normaliser.view<float>());
    outputs.push_back({"dq", DType::f32, dq.shape(), dq.raw()});
    outputs.push_back({"dk", DType::f32, dk.shape(), dk.raw()});
    outputs.push_back({"dv", DType::f32, dv.shape(), dv.raw()});
  }
  write_safetensors(arguments.out, outputs, {{"family", arguments.family}, {"mask", mask.name()}});

  Json result = {
      {"out", arguments.out}, {"family", arguments.family}, {"mask", mask.name()}, {"ms", 1e3 * seconds}};
  fmt::print(stderr, "{} attention over {} in {:.3g} ms: {}\n", arguments.family,
             to_string(attended.out.shape()), 1e3 * seconds, arguments.out);
  if (other_attention) {
    const Attended other = attend(*other_attention, inputs);
    result["compare"] = difference(attended.out.span<float>(), other.out.span<float>());
    result["compare"]["family"] = arguments.compare;
    if (!arguments.json)
      fmt::print("against {}: relative error {:.4g}, largest {:.4g}\n", arguments.compare,
                 result["compare"]["relative_error"].get<double>(),
                 result["compare"]["largest_error"].get<double>());
  }
  if (arguments.json) fmt::print("{}\n", result.dump(2));
}

}  // namespace

void add_attend(CLI::App& program) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("attend", "One attention on your own queries, keys and values");
  command->footer(
      "The input holds q, k and v (and grad_out for --gradients), f32 [batch, length, heads, dim]; the "
      "output gets out\n"
      "(and dq, dk, dv).\n"
      "Example: linnet attend qkv.safetensors --family linear --mask causal --out out.safetensors --compare "
      "softmax");
  command->add_option("in", arguments->in, "safetensors file")->required();
  command->add_option("--out", arguments->out, "safetensors file to write")->required();
  command->add_option("--family", arguments->family, "attention family")->capture_default_str();
  command->add_option("--feature-map", arguments->feature_map, "of the linear family")->capture_default_str();
  command->add_option("--alpha", arguments->alpha, "of elu")
      ->check(number(0, 1, true))
      ->capture_default_str();
  command->add_option("--epsilon", arguments->epsilon, "in the linear denominator")
      ->check(number(0, 1))
      ->capture_default_str();
  command->add_option("--normalise", arguments->normalise, "sum or none")->check(one_of({"sum", "none"}));
  command->add_option("--scale", arguments->scale, "of softmax; 0 is 1/√E")->check(number(0));
  command->add_option("--mask", arguments->mask, "full or causal")->check(one_of({"full", "causal"}));
  command->add_option("--key-lengths", arguments->key_lengths, "keys that are not padding, one a batch entry")
      ->delimiter(',')
      ->check(whole(0));
  command->add_flag("--gradients", arguments->gradients, "also the gradients, from grad_out");
  command->add_option("--compare", arguments->compare, "print the error against another family");
  command->add_option("--threads", arguments->threads, "threads to use; all by default")
      ->check(whole(1, most_threads));
  command->add_flag("--json", arguments->json, "print the result as JSON");
  command->callback([=] { run(*arguments); });
}

}  // namespace linnet
