#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command_line.h"
#include "linnet/attention.h"

namespace linnet {

/// An option that only some values of another one, its owners, have a use for.
struct OwnedOption {
  Option option;
  std::vector<std::string> owners;
};

/// Throws UsageError where the user gave one of `options` and none of its owners is among `chosen`, the
/// values of `selector`.
void check_owned(const char* operation, const char* selector, const std::vector<OwnedOption>& options,
                 const std::vector<std::string>& chosen);

/// The options of `attend` and `bench attention` that say of an attention what the names of its family and
/// feature map leave open.
struct FamilyOptions {
  double alpha = 1, epsilon = 1e-6, scale = 0;
  std::string normalise = "sum";
  std::string similarity = "exponential";
  SimilarityParameters similarity_parameters;
  std::vector<std::int64_t> window = {128, 0};  ///< of local
  std::string pattern = "strided";
  std::int64_t stride = 0, summary = 8;
  std::int64_t rank = 128;
  LshOptions lsh;
  std::int64_t features = 0;        ///< of random maps; 0 is their default
  std::string directions = "auto";  ///< of random maps
  std::uint64_t seed = 0;           ///< of random maps, of lsh's rotations and of linformer's projections

  void add_to(Command& command);

  /// Has `check` refuse another option of the command where none of the families is among these.
  void add_owned(const Option& option, std::vector<std::string> families);

  /// Throws UsageError for an unknown one of `families`, for an option that none of them or of the linear
  /// family's `maps` has, and for values that cannot be together.
  void check(const char* operation, const std::vector<std::string>& families,
             const std::vector<std::string>& maps) const;

  /// Whether the user gave that option.
  bool given(const std::string& option) const;

  /// Those of that family for heads of `head_dim` numbers; `feature_map` serves linear alone. Throws
  /// UsageError for unknown names, with the nearest known one.
  AttentionOptions of(const std::string& family, const std::string& feature_map, std::int64_t head_dim) const;

 private:
  std::vector<OwnedOption> owned_;  ///< by families
};

/// Linformer's E and F, [heads, rank, length].
struct Projections {
  Tensor key, value;
};

/// Normal with variance 1/length, as a model's begin: a compressed key of independent tokens is about as long
/// as a token's. Throws UsageError where the rank is above the length.
Projections draw_projections(Context& context, const char* operation, const FamilyOptions& options,
                             std::int64_t heads, std::int64_t length);

}  // namespace linnet
