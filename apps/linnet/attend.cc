#include <fmt/core.h>

#include <chrono>
#include <cmath>

#include "attend_mask.h"
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
  std::string in, out, family = "linear", feature_map = "elu", compare, normalise = "sum";
  MaskOptions mask;
  double alpha = 1, epsilon = 1e-6, scale = 0;
  std::int64_t features = 0;
  std::uint64_t seed = 0;
  std::vector<double> decay;
  bool gradients = false, json = false;
  int threads = 0;
};

Tensor read_input(const Safetensors& file, const std::string& path, const std::string& name) {
  if (!file.contains(name)) fail("attend", "expected a tensor {} in {}, got none", name, path);
  const DType type = file.dtype(name);
  if ((type != DType::f32 && type != DType::bf16) || file.shape(name).size() != 4)
    fail("attend", "expected {} in {} to be f32 or bf16 [batch, length, heads, dim], got {} {}", name, path,
         name_of(type), to_string(file.shape(name)));
  return file.tensor(name);
}

/// γ [heads] of the option, else of the file; empty where neither gives one.
Tensor read_decay(const Arguments& arguments, const Safetensors& file, std::int64_t heads) {
  if (arguments.decay.empty()) {
    if (!file.contains("decay")) return {};
    if (file.dtype("decay") != DType::f32 || file.shape("decay") != Shape{heads})
      fail("attend", "expected decay in {} to be f32 [{}], one γ a head, got {} {}", arguments.in, heads,
           name_of(file.dtype("decay")), to_string(file.shape("decay")));
    return file.tensor("decay");
  }
  const std::size_t given = arguments.decay.size();
  if (given != 1 && static_cast<std::int64_t>(given) != heads)
    fail<UsageError>("attend", "expected --decay with one γ or one for each of {} heads, got {}", heads,
                     given);
  Tensor decay = Tensor::of<float>({heads});
  for (std::size_t h = 0; h < decay.span<float>().size(); ++h)
    decay.span<float>()[h] = static_cast<float>(arguments.decay[given == 1 ? 0 : h]);
  return decay;
}

AttentionOptions options_of(const Arguments& arguments, const std::string& family, std::int64_t head_dim) {
  AttentionOptions options;
  options.family = find_family(family);
  options.feature_map = find_feature_map(
      arguments.feature_map, {.alpha = static_cast<float>(arguments.alpha),
                              .head_dim = head_dim,
                              .random = {.features = arguments.features, .seed = arguments.seed}});
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
  Attended result{Tensor(inputs.query.dtype(), {batch, length, heads, inputs.value.extent(3)}),
                  Tensor::of<float>({batch, length, heads})};
  attention.forward({result.out.float_view(), result.normaliser.view<float>()}, inputs);
  return result;
}

double number_at(const Tensor& tensor, std::int64_t i) {
  const auto place = static_cast<std::size_t>(i);
  return tensor.dtype() == DType::bf16 ? to_float(tensor.span<bf16>()[place]) : tensor.span<float>()[place];
}

/// ‖a − b‖ / ‖b‖ and the largest |a − b|.
Json difference(const Tensor& a, const Tensor& b) {
  double error = 0, norm = 0, largest = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double wanted = number_at(b, i), d = number_at(a, i) - wanted;
    error += d * d;
    norm += wanted * wanted;
    largest = std::max(largest, std::abs(d));
  }
  return {{"relative_error", norm > 0 ? std::sqrt(error / norm) : std::sqrt(error)},
          {"largest_error", largest}};
}

/// Against another family, which keeps the decay only if it is one that has decays.
Json compare(const Arguments& arguments, const Attention& other, AttentionInputs inputs, const Tensor& out) {
  const bool decay = inputs.decay.rank() != 0, dropped = decay && arguments.compare != "linear";
  if (dropped) inputs.decay = {};
  Json result = difference(out, attend(other, inputs).out);
  result["family"] = arguments.compare;
  if (decay) result["decay"] = !dropped;
  if (!arguments.json)
    fmt::print("against {}{}: relative error {:.4g}, largest {:.4g}\n", arguments.compare,
               dropped ? " without decay" : "", result["relative_error"].get<double>(),
               result["largest_error"].get<double>());
  return result;
}

void run(const Arguments& arguments) {
  if (arguments.threads > 0) set_thread_count(arguments.threads);
  arguments.mask.check();
  const Safetensors file = Safetensors::read(arguments.in);
  require_file_path(arguments.out);
  const Tensor q = read_input(file, arguments.in, "q"), k = read_input(file, arguments.in, "k"),
               v = read_input(file, arguments.in, "v");
  const std::int64_t head_dim = q.shape()[3];
  const auto attention = make_attention(options_of(arguments, arguments.family, head_dim));
  const auto other_attention = arguments.compare.empty()
                                   ? nullptr
                                   : make_attention(options_of(arguments, arguments.compare, head_dim));
  const FileMask mask = read_mask(arguments.mask, file, arguments.in);
  const Tensor decay = read_decay(arguments, file, q.shape()[2]);
  AttentionInputs inputs{q.float_view(), k.float_view(), v.float_view(), mask.mask};
  if (decay.size() != 0) inputs.decay = decay.view<float>();
  const auto start = std::chrono::steady_clock::now();
  const Attended attended = attend(*attention, inputs);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  std::vector<NamedTensor> outputs;
  const auto keep = [&](const char* name, const Tensor& tensor) {
    outputs.push_back({name, tensor.dtype(), tensor.shape(), tensor.raw()});
  };
  keep("out", attended.out);
  Tensor dq, dk, dv, ddecay;
  if (arguments.gradients) {
    const Tensor grad_out = read_input(file, arguments.in, "grad_out");
    dq = Tensor(q.dtype(), q.shape());
    dk = Tensor(k.dtype(), k.shape());
    dv = Tensor(v.dtype(), v.shape());
    AttentionGradients gradients{dq.float_view(), dk.float_view(), dv.float_view()};
    if (inputs.decay.rank() != 0) {
      ddecay = Tensor::of<float>(decay.shape());
      gradients.decay = ddecay.view<float>();
    }
    attention->backward(gradients, grad_out.float_view(), inputs, attended.out.float_view(),
                        attended.normaliser.view<float>());
    keep("dq", dq);
    keep("dk", dk);
    keep("dv", dv);
    if (inputs.decay.rank() != 0) keep("ddecay", ddecay);
  }
  write_safetensors(arguments.out, outputs, {{"family", arguments.family}, {"mask", mask.mask.name()}});

  Json result = {{"out", arguments.out},
                 {"family", arguments.family},
                 {"mask", mask.mask.name()},
                 {"dtype", name_of(q.dtype())},
                 {"ms", 1e3 * seconds}};
  fmt::print(stderr, "{} attention over {} in {:.3g} ms: {}\n", arguments.family,
             to_string(attended.out.shape()), 1e3 * seconds, arguments.out);
  if (other_attention) result["compare"] = compare(arguments, *other_attention, inputs, attended.out);
  if (arguments.json) fmt::print("{}\n", result.dump(2));
}

}  // namespace

void add_attend(CLI::App& program) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("attend", "One attention on your own queries, keys and values");
  command->footer(
      "The input holds q, k and v (and grad_out for --gradients), f32 or bf16 [batch, length, heads, dim];\n"
      "begin and end, i64 or i32 [queries], for --mask intervals; mask, u8 [batch or 1, queries, keys], for\n"
      "--mask boolean; decay, f32 [heads], if it likes. The output gets out (and dq, dk, dv, ddecay).\n"
      "Example: linnet attend qkv.safetensors --family linear --mask causal --out out.safetensors --compare "
      "softmax\n"
      "         linnet attend qkv.safetensors --mask window --window 49,0 --segments 0,70,71,200 --out "
      "out.safetensors\n"
      "         linnet attend qkv.safetensors --mask causal --decay 0.9,0.99 --gradients --out "
      "out.safetensors");
  command->add_option("in", arguments->in, "safetensors file")->required();
  command->add_option("--out", arguments->out, "safetensors file to write")->required();
  command->add_option("--family", arguments->family, "attention family")->capture_default_str();
  command->add_option("--feature-map", arguments->feature_map, "of the linear family")->capture_default_str();
  command->add_option("--features", arguments->features, "of random maps; E ln E by default")
      ->check(whole(1, most_count));
  command->add_option("--seed", arguments->seed, "of the directions of random maps")->capture_default_str();
  command->add_option("--alpha", arguments->alpha, "of elu")
      ->check(number(0, 1, true))
      ->capture_default_str();
  command->add_option("--epsilon", arguments->epsilon, "in the linear denominator")
      ->check(number(0, 1))
      ->capture_default_str();
  command->add_option("--normalise", arguments->normalise, "sum or none")->check(one_of({"sum", "none"}));
  command->add_option("--scale", arguments->scale, "of softmax; 0 is 1/√E")->check(number(0));
  arguments->mask.add_to(*command);
  command
      ->add_option("--decay", arguments->decay,
                   "γ of the causal linear family, 0 < γ ≤ 1: one a head or one for all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number(0, 1, true));
  command->add_flag("--gradients", arguments->gradients, "also the gradients, from grad_out");
  command->add_option("--compare", arguments->compare, "print the error against another family");
  command->add_option("--threads", arguments->threads, "threads to use; all by default")
      ->check(whole(1, most_threads));
  command->add_flag("--json", arguments->json, "print the result as JSON");
  command->callback([=] { run(*arguments); });
}

}  // namespace linnet
