#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attend/mask.h"
#include "attention_options.h"
#include "io/safetensors.h"
#include "linnet/attention.h"

namespace linnet {

/// What `attend` takes from its file, and what it makes where the file leaves it out.
struct FileInputs {
  Tensor query, key, value;  ///< [batch, length, heads, dim]; no key where lsh attends: its keys are queries
  FileMask mask;
  Tensor decay;                    ///< γ [heads], or none
  Projections projections;         ///< linformer's, or none
  bool drawn = false;              ///< whether they were drawn, not read
  std::unique_ptr<State> initial;  ///< that the queries continue, or null

  AttentionInputs views() const;

  /// Queries brought to unit length, which is what lsh has for keys, in their type.
  Tensor unit_keys() const;
};

/// A tensor f32 or bf16 [batch, length, heads, dim] of that name. Throws Error of the `operation` where the
/// file has none.
Tensor read_input(const char* operation, const Safetensors& file, const std::string& path,
                  const std::string& name);

/// A tensor of whole numbers, i64 or i32 with one dimension. `layout` describes it, "[queries]". Throws Error
/// where the file has another one or none.
std::vector<std::int64_t> read_whole_numbers(const Safetensors& file, const std::string& path,
                                             const std::string& name, const char* layout);

/// All but the initial state, which the attention makes. `decay` is that of the option, which wins over the
/// file's. Throws Error where the file does not have what family, mask and decay need, UsageError where
/// options do not fit it.
FileInputs read_inputs(Context& context, const Safetensors& file, const std::string& path,
                       const std::string& family, const std::string& compare, const MaskOptions& mask,
                       const FamilyOptions& options, const std::vector<double>& decay);

}  // namespace linnet
