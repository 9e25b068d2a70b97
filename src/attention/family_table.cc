#include <array>

#include "attention/kernel/kernel_attention.h"
#include "attention/linear/linear_attention.h"
#include "attention/linformer/linformer_attention.h"
#include "attention/lsh/lsh_attention.h"
#include "attention/softmax/softmax_attention.h"
#include "attention/sparse/local_attention.h"
#include "attention/sparse/strided_attention.h"
#include "base/fail.h"
#include "base/names.h"
#include "linnet/instruction_set.h"

namespace linnet {
namespace {

const std::array<FamilyInfo, 7> table = {{
    {Family::linear, "linear", "every mask; quadratic with boolean masks", true, "4 F M", "14 F M",
     "F M + F"},
    {Family::softmax, "softmax", "every mask", true, "2 (E + M) per visible key", "8 E + 6 M per visible key",
     "E + M per token"},
    {Family::kernel, "kernel", "every mask", false, "2 (E + M) per visible key", "8 E + 6 M per visible key",
     "none"},
    {Family::linformer, "linformer", "full, with key lengths; at most the trained length", false,
     "4 k (E + M), k the rank", "k (14 E + 12 M)", "none"},
    {Family::lsh, "lsh", "full and causal, with key lengths; keys are the queries", false,
     "2 R c (E + M) + R E b, c keys per query and round, b buckets of the hashes", "R c (8 E + 6 M) + R E b",
     "none"},
    {Family::local, "local", "every mask except boolean masks", true, "2 (E + M) per key in the window",
     "8 E + 6 M per key in the window", "(left + 1) (E + M)"},
    {Family::strided, "strided", "causal, with key lengths", true, "2 (E + M) (s + N/s), s about N^(1/2)",
     "(8 E + 6 M) (s + N/s)", "E + M per token; fixed: (s + c N/s) (E + M)"},
}};

}  // namespace

std::span<const FamilyInfo> family_table() { return table; }

Family find_family(const std::string& name) {
  std::vector<std::string> names;
  for (const FamilyInfo& info : table) {
    if (info.name == name) return info.family;
    names.push_back(info.name);
  }
  const std::string nearest = nearest_name(name, names);
  if (nearest.empty())
    fail<UsageError>("attention family", "expected one of {}, got '{}'", fmt::join(names, ", "), name);
  fail<UsageError>("attention family", "expected one of {}, got '{}'; did you mean {}?",
                   fmt::join(names, ", "), name, nearest);
}

const char* name_of(Family family) {
  for (const FamilyInfo& info : table)
    if (info.family == family) return info.name.c_str();
  return "unknown";
}

std::unique_ptr<Attention> make_attention(const AttentionOptions& options) {
  instruction_set();  // throws where LINNET_ISA cannot be obeyed
  switch (options.family) {
    case Family::softmax:
      return make_softmax_attention(options);
    case Family::kernel:
      return make_kernel_attention(options);
    case Family::local:
      return make_local_attention(options);
    case Family::strided:
      return make_strided_attention(options);
    case Family::linformer:
      return make_linformer_attention(options);
    case Family::lsh:
      return make_lsh_attention(options);
    case Family::linear:
      break;
  }
  return make_linear_attention(options);
}

void reference_forward(const AttentionOptions& options, View<double> out, const ReferenceInputs& inputs) {
  switch (options.family) {
    case Family::softmax:
      return softmax_reference_forward(options, out, inputs);
    case Family::kernel:
      return kernel_reference_forward(options, out, inputs);
    case Family::local:
      return local_reference_forward(options, out, inputs);
    case Family::strided:
      return strided_reference_forward(options, out, inputs);
    case Family::linformer:
      return linformer_reference_forward(options, out, inputs);
    case Family::lsh:
      return lsh_reference_forward(options, out, inputs);
    case Family::linear:
      return linear_reference_forward(options, out, inputs);
  }
}

void reference_backward(const AttentionOptions& options, View<double> grad_query, View<double> grad_key,
                        View<double> grad_value, View<const double> grad_out, const ReferenceInputs& inputs,
                        View<double> grad_decay, View<double> grad_key_projection,
                        View<double> grad_value_projection) {
  switch (options.family) {
    case Family::softmax:
      return softmax_reference_backward(options, grad_query, grad_key, grad_value, grad_out, inputs);
    case Family::kernel:
      return kernel_reference_backward(options, grad_query, grad_key, grad_value, grad_out, inputs);
    case Family::local:
      return local_reference_backward(options, grad_query, grad_key, grad_value, grad_out, inputs);
    case Family::strided:
      return strided_reference_backward(options, grad_query, grad_key, grad_value, grad_out, inputs);
    case Family::linformer:
      return linformer_reference_backward(options, grad_query, grad_key, grad_value, grad_out, inputs,
                                          grad_key_projection, grad_value_projection);
    case Family::lsh:
      return lsh_reference_backward(options, grad_query, grad_key, grad_value, grad_out, inputs);
    case Family::linear:
      return linear_reference_backward(options, grad_query, grad_key, grad_value, grad_out, inputs,
                                       grad_decay);
  }
}

}  // namespace linnet
