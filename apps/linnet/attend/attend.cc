#include <fmt/core.h>

#include <chrono>
#include <cmath>

#include "attend/forms.h"
#include "attend/inputs.h"
#include "attend/states.h"
#include "attention/family.h"
#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "linnet/attention.h"
#include "outputs.h"
#include "report.h"

namespace linnet {
namespace {

struct Arguments {
  std::string in, out, family = "linear", feature_map = "elu", compare, form = "parallel",
                       state_sums = "compensated";
  MaskOptions mask;
  FamilyOptions options;
  std::vector<double> decay;
  bool gradients = false, normalisers = false, final_state = false, json = false;
  int threads = 0;

  bool recurrent() const { return form == "recurrent"; }
};

/// Throws UsageError for options that cannot be together.
void check(const Arguments& arguments) {
  arguments.mask.check();
  std::vector<std::string> families = {arguments.family};
  if (!arguments.compare.empty()) families.push_back(arguments.compare);
  arguments.options.check("attend", families, {arguments.feature_map});
  if (arguments.compare == "lsh" && arguments.family != "lsh")
    fail<UsageError>("attend",
                     "expected --family lsh with --compare lsh, since the keys of lsh are its queries, got "
                     "{}: exchange the two families",
                     arguments.family);
  const FamilyInfo& family = info_of(find_family(arguments.family));
  const auto needs_states = [&](const char* option, bool given) {
    if (!given || family.recurrent) return;
    std::vector<std::string> recurrent;
    for (const FamilyInfo& row : family_table())
      if (row.recurrent) recurrent.push_back(row.name);
    fail<UsageError>("attend", "expected a family with a recurrent form ({}) with {}, got {}",
                     fmt::join(recurrent, ", "), option, family.name);
  };
  needs_states("--form recurrent", arguments.recurrent());
  needs_states("--final-state", arguments.final_state);
  if (arguments.options.given("--state-sums") && family.family != Family::linear)
    fail<UsageError>("attend", "expected --family linear with --state-sums, got {}", family.name);
  if (!arguments.recurrent()) return;
  const MaskOptions& mask = arguments.mask;
  if (mask.mask != "causal" || !mask.key_lengths.empty() || !mask.segments.empty())
    fail<UsageError>("attend", "expected --mask causal with --form recurrent, got {}{}{}", mask.mask,
                     mask.key_lengths.empty() ? "" : " with --key-lengths",
                     mask.segments.empty() ? "" : " with --segments");
  const auto parallel_alone = [&](const char* option, bool given) {
    if (given)
      fail<UsageError>("attend",
                       "expected --form parallel with {}, which a step does not give, got recurrent", option);
  };
  parallel_alone("--gradients", arguments.gradients);
  parallel_alone("--normalisers", arguments.normalisers);
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
    if (!(std::abs(d) <= largest) && !std::isnan(largest)) largest = std::abs(d);
  }
  return {{"relative_error", norm > 0 ? std::sqrt(error / norm) : std::sqrt(error)},
          {"largest_error", largest}};
}

/// Against another family, which keeps the decay only if it is one that has decays, and sees the keys that
/// lsh saw.
Json compare(Context& context, const Arguments& arguments, const Attention& other, const FileInputs& read,
             const Tensor& out) {
  AttentionInputs inputs = read.views();
  Tensor unit_keys;
  if (arguments.family == "lsh" && arguments.compare != "lsh") {
    unit_keys = read.unit_keys();
    inputs.key = std::as_const(unit_keys).float_view();
  }
  const bool decay = inputs.decay.rank() != 0, dropped = decay && arguments.compare != "linear";
  if (dropped) inputs.decay = {};
  Json result = difference(out, attend_parallel(context, other, inputs, false).out);
  result["family"] = arguments.compare;
  if (decay) result["decay"] = !dropped;
  if (!arguments.json)
    print_summary(arguments.out,
                  fmt::format("against {}{}: relative error {:.4g}, largest {:.4g}\n", arguments.compare,
                              dropped ? " without decay" : "", result["relative_error"].get<double>(),
                              result["largest_error"].get<double>()));
  return result;
}

/// How many denominators of the linear family are not positive, which makes their rows mean nothing, and how
/// many of those vanished, which makes them zeros.
Json denominators_of(const Arguments& arguments, const Attended& attended) {
  const std::int64_t all = attended.normaliser.size();
  if (attended.non_positive > 0 && !arguments.json)
    print_summary(
        arguments.out,
        fmt::format("{} of {} denominators are not positive, and their rows mean nothing; {} of them "
                    "vanished, and their rows are zeros\n",
                    attended.non_positive, all, attended.vanished));
  return {{"all", all}, {"non_positive", attended.non_positive}, {"vanished", attended.vanished}};
}

using Tensors = std::vector<std::pair<std::string, Tensor>>;

/// Those of all inputs, by the names that the output gives them.
Tensors gradients_of(Context& context, const Arguments& arguments, const Attention& attention,
                     const Safetensors& file, const FileInputs& read, const Attended& attended) {
  const AttentionInputs inputs = read.views();
  const Tensor grad_out = read_input("attend", file, arguments.in, "grad_out");
  Tensors result;
  const auto add = [&](const char* name, DType type, std::span<const std::int64_t> shape) -> Tensor& {
    return result.emplace_back(name, Tensor(type, Shape(shape.begin(), shape.end()))).second;
  };
  const auto like = [&](const char* name, ConstFloatView view) {
    return add(name, view.dtype(), view.shape()).float_view();
  };
  const auto numbers_like = [&](const char* name, View<const float> view) {
    return add(name, DType::f32, view.shape()).view<float>();
  };
  AttentionGradients gradients{like("dq", inputs.query), like("dk", inputs.key), like("dv", inputs.value)};
  if (inputs.decay.rank() != 0) gradients.decay = numbers_like("ddecay", inputs.decay);
  Tensor grad_final;
  if (inputs.initial != nullptr)
    gradients.initial =
        result.emplace_back("dinitial_state", zero_gradient(*inputs.initial)).second.view<float>();
  if (file.contains("grad_final_state")) {
    if (file.dtype("grad_final_state") != DType::f32)
      fail("attend", "expected grad_final_state in {} to be f32, got {}", arguments.in,
           name_of(file.dtype("grad_final_state")));
    grad_final = file.tensor("grad_final_state");
    gradients.final = std::as_const(grad_final).view<float>();
  }
  if (arguments.family == "linformer") {
    gradients.key_projection = numbers_like("dkey_projection", inputs.key_projection);
    gradients.value_projection = numbers_like("dvalue_projection", inputs.value_projection);
  }
  attention.backward(context, gradients, grad_out.float_view(), inputs, attended.out.float_view(),
                     attended.normaliser.view<float>());
  return result;
}

void run(const Arguments& arguments) {
  Context context(arguments.threads);
  check(arguments);
  check_outputs("attend", {{"--out", arguments.out}}, {{"the input", arguments.in}});
  const Safetensors file = Safetensors::read(arguments.in);
  FileInputs read = read_inputs(context, file, arguments.in, arguments.family, arguments.compare,
                                arguments.mask, arguments.options, arguments.decay);
  const auto make = [&](const std::string& family) {
    AttentionOptions options = arguments.options.of(family, arguments.feature_map, read.query.shape()[3]);
    if (arguments.state_sums == "plain") options.linear.sums = StateSums::plain;
    return make_attention(options);
  };
  const auto attention = make(arguments.family);
  const auto other_attention = arguments.compare.empty() ? nullptr : make(arguments.compare);
  const Shape& query = read.query.shape();
  read.initial = read_initial_state(*attention, file, arguments.in, query[0],
                                    {query[2], query[3], read.value.shape()[3]});
  if (read.initial != nullptr && other_attention != nullptr && arguments.compare != arguments.family)
    fail("attend", "expected --compare {}, whose state initial_state in {} is, got {}", arguments.family,
         arguments.in, arguments.compare);
  const AttentionInputs inputs = read.views();
  const auto start = std::chrono::steady_clock::now();
  const Attended attended = arguments.recurrent()
                                ? attend_recurrent(context, *attention, inputs)
                                : attend_parallel(context, *attention, inputs, arguments.final_state);
  const double seconds = seconds_since(start);

  const Tensors gradients =
      arguments.gradients ? gradients_of(context, arguments, *attention, file, read, attended) : Tensors();
  const Tensors states = arguments.final_state ? tensors_of(*attended.final) : Tensors();
  std::vector<NamedTensor> outputs;
  Json written = Json::object();
  const auto keep = [&](const std::string& name, const Tensor& tensor) {
    outputs.push_back({name, tensor.dtype(), tensor.shape(), tensor.raw()});
    written[name] = tensor.shape();
  };
  keep("out", attended.out);
  if (arguments.normalisers) keep("normaliser", attended.normaliser);
  for (const auto& [name, tensor] : states) keep(name, tensor);
  for (const auto& [name, tensor] : gradients) keep(name, tensor);
  if (read.drawn && arguments.family == "linformer") {
    keep("key_projection", read.projections.key);
    keep("value_projection", read.projections.value);
  }
  write_safetensors(arguments.out, outputs, {{"family", arguments.family}, {"mask", inputs.mask.name()}});

  Json result = {{"out", arguments.out},   {"family", arguments.family},
                 {"form", arguments.form}, {"mask", inputs.mask.name()},
                 {"tensors", written},     {"dtype", name_of(inputs.query.dtype())},
                 {"ms", 1e3 * seconds}};
  print_note(fmt::format("{} attention over {} in {:.3g} ms: {}", arguments.family,
                         to_string(attended.out.shape()), 1e3 * seconds, arguments.out));
  if (arguments.family == "linear" && !arguments.recurrent())
    result["denominators"] = denominators_of(arguments, attended);
  if (other_attention) result["compare"] = compare(context, arguments, *other_attention, read, attended.out);
  if (arguments.json) print_json(result);
}

}  // namespace

void add_attend(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("attend", "One attention on your own queries, keys and values");
  command.footer(
      "Tensors of the input:\n"
      "  q, k, v, and grad_out for --gradients: f32 or bf16 [batch, length, heads, dim]; lsh uses q as k\n"
      "  begin, end for --mask intervals: i64 or i32 [queries]\n"
      "  mask for --mask boolean: u8 [batch or 1, queries, keys]\n"
      "  decay, optional: f32 [heads]\n"
      "  key_projection, value_projection of linformer, optional: f32 [heads or 1, rank, length]\n"
      "  initial_state, optional: f32 [batch, floats], with initial_position: i64 or i32 [batch]\n"
      "  grad_final_state for --gradients, optional: f32 [batch, floats]\n"
      "Tensors of the output: out; with --gradients dq, dk, dv, ddecay, dkey_projection, dvalue_projection\n"
      "and dinitial_state, each of the shape of its input; the projections of linformer where they were "
      "drawn;\n"
      "  normaliser with --normalisers: f32 [batch, length, heads]\n"
      "  final_state and final_position with --final-state: f32 [batch, floats] and i64 [batch]\n"
      "Example: linnet attend qkv.safetensors --family linear --mask causal --out out.safetensors --compare "
      "softmax\n"
      "         linnet attend qkv.safetensors --mask window --window 49,0 --segments 0,70,71,200 --out "
      "out.safetensors\n"
      "         linnet attend qkv.safetensors --mask causal --decay 0.9,0.99 --gradients --out "
      "out.safetensors\n"
      "         linnet attend qkv.safetensors --mask causal --form recurrent --final-state --out "
      "out.safetensors\n"
      "         linnet attend qkv.safetensors --family linformer --rank 64 --out out.safetensors --compare "
      "softmax");
  command.add_option("in", arguments->in, "safetensors file").required();
  command.add_option("--out", arguments->out, "safetensors file to write").required();
  command.add_option("--family", arguments->family, "attention family; linnet families lists them")
      .capture_default_str();
  arguments->options.add_owned(
      command.add_option("--feature-map", arguments->feature_map, "feature map of the linear family")
          .capture_default_str(),
      {"linear"});
  arguments->options.add_to(command);
  arguments->mask.add_to(command);
  command
      .add_option("--decay", arguments->decay,
                  "γ of the causal linear family, 0 < γ ≤ 1: one per head or one for all")
      .delimiter(',')
      .allow_extra_args(false)
      .check(number(0, 1, true));
  command
      .add_option("--form", arguments->form,
                  "parallel, or recurrent: one token after another, with --mask causal")
      .check(one_of({"parallel", "recurrent"}))
      .capture_default_str();
  command.add_flag("--gradients", arguments->gradients, "also compute the gradients, from grad_out");
  command.add_flag("--normalisers", arguments->normalisers,
                   "also write the denominator or log-sum-exp of every query and head");
  command.add_flag("--final-state", arguments->final_state, "also write the state after the last key");
  arguments->options.add_owned(
      command
          .add_option(
              "--state-sums", arguments->state_sums,
              "sums in the states of linear: plain f32, or compensated, which takes twice the numbers")
          .check(one_of({"plain", "compensated"}))
          .capture_default_str(),
      {"linear"});
  command.add_option("--compare", arguments->compare, "print the error against another family");
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
