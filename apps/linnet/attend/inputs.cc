#include "attend/inputs.h"

#include <cmath>
#include <cstring>

#include "base/fail.h"

namespace linnet {
namespace {

/// γ [heads] of the option, else of the file; empty where neither gives one.
Tensor read_decay(const std::vector<double>& option, const Safetensors& file, const std::string& path,
                  std::int64_t heads) {
  if (option.empty()) {
    if (!file.contains("decay")) return {};
    if (file.dtype("decay") != DType::f32 || file.shape("decay") != Shape{heads})
      fail("attend", "expected decay in {} to be f32 [{}], one γ per head, got {} {}", path, heads,
           name_of(file.dtype("decay")), to_string(file.shape("decay")));
    return file.tensor("decay");
  }
  const std::size_t given = option.size();
  if (given != 1 && static_cast<std::int64_t>(given) != heads)
    fail<UsageError>("attend", "expected --decay with one γ or one for each of {} heads, got {}", heads,
                     given);
  Tensor decay = Tensor::of<float>({heads});
  for (std::size_t h = 0; h < decay.span<float>().size(); ++h)
    decay.span<float>()[h] = static_cast<float>(option[given == 1 ? 0 : h]);
  return decay;
}

/// Throws unless k is left out or holds the numbers of q.
void check_shared_key(const Safetensors& file, const std::string& path, const Tensor& query) {
  if (!file.contains("k")) return;
  const Tensor key = read_input("attend", file, path, "k");
  if (key.dtype() != query.dtype() || key.shape() != query.shape() ||
      std::memcmp(key.raw(), query.raw(), query.bytes()) != 0)
    fail("attend",
         "expected k in {} to be left out or equal to q with --family lsh, whose keys are its queries, got "
         "other numbers",
         path);
}

Tensor read_projection(const Safetensors& file, const std::string& path, const char* name,
                       const FamilyOptions& options) {
  if (!file.contains(name))
    fail("attend", "expected key_projection and value_projection in {}, or neither, got no {}", path, name);
  const Shape& shape = file.shape(name);
  if (file.dtype(name) != DType::f32 || shape.size() != 3)
    fail("attend", "expected {} in {} to be f32 [heads or 1, rank, length], got {} {}", name, path,
         name_of(file.dtype(name)), to_string(shape));
  if (options.given("--rank") && options.rank != shape[1])
    fail<UsageError>("attend", "expected --rank {} as {} in {} has it, got {}", shape[1], name, path,
                     options.rank);
  return file.tensor(name);
}

}  // namespace

Tensor read_input(const char* operation, const Safetensors& file, const std::string& path,
                  const std::string& name) {
  if (!file.contains(name)) fail(operation, "expected a tensor {} in {}, got none", name, path);
  const DType type = file.dtype(name);
  if ((type != DType::f32 && type != DType::bf16) || file.shape(name).size() != 4)
    fail(operation, "expected {} in {} to be f32 or bf16 [batch, length, heads, dim], got {} {}", name, path,
         name_of(type), to_string(file.shape(name)));
  return file.tensor(name);
}

std::vector<std::int64_t> read_whole_numbers(const Safetensors& file, const std::string& path,
                                             const std::string& name, const char* layout) {
  const DType type = file.dtype(name);
  const Shape& shape = file.shape(name);
  if ((type != DType::i64 && type != DType::i32) || shape.size() != 1)
    fail("attend", "expected {} in {} to be i64 or i32 {}, got {} {}", name, path, layout, name_of(type),
         to_string(shape));
  const Tensor tensor = file.tensor(name);
  if (type == DType::i64) return {tensor.span<std::int64_t>().begin(), tensor.span<std::int64_t>().end()};
  return {tensor.span<std::int32_t>().begin(), tensor.span<std::int32_t>().end()};
}

FileInputs read_inputs(Context& context, const Safetensors& file, const std::string& path,
                       const std::string& family, const std::string& compare, const MaskOptions& mask,
                       const FamilyOptions& options, const std::vector<double>& decay) {
  FileInputs inputs;
  inputs.query = read_input("attend", file, path, "q");
  if (family == "lsh")
    check_shared_key(file, path, inputs.query);
  else
    inputs.key = read_input("attend", file, path, "k");
  inputs.value = read_input("attend", file, path, "v");
  inputs.mask = read_mask(mask, file, path);
  inputs.decay = read_decay(decay, file, path, inputs.query.shape()[2]);
  if (family != "linformer" && compare != "linformer") return inputs;
  inputs.drawn = !file.contains("key_projection") && !file.contains("value_projection");
  if (inputs.drawn)
    inputs.projections =
        draw_projections(context, "attend", options, inputs.query.shape()[2], inputs.views().key.extent(1));
  else
    inputs.projections = {read_projection(file, path, "key_projection", options),
                          read_projection(file, path, "value_projection", options)};
  return inputs;
}

AttentionInputs FileInputs::views() const {
  AttentionInputs inputs{query.float_view(), key.shape().empty() ? query.float_view() : key.float_view(),
                         value.float_view(), mask.mask};
  inputs.initial = initial.get();
  if (decay.size() != 0) inputs.decay = decay.view<float>();
  if (projections.key.size() != 0) inputs.key_projection = projections.key.view<float>();
  if (projections.value.size() != 0) inputs.value_projection = projections.value.view<float>();
  return inputs;
}

Tensor FileInputs::unit_keys() const {
  Tensor unit(query.dtype(), query.shape());
  const auto fill = [&](auto to, auto from, auto number, auto rounded) {
    const std::int64_t dim = query.shape()[3];
    for (std::size_t row = 0; row < from.size(); row += static_cast<std::size_t>(dim)) {
      double square = 0;
      for (std::int64_t e = 0; e < dim; ++e) square += std::pow(number(from[row + e]), 2);
      const double inverse = square > 0 ? 1 / std::sqrt(square) : 0;
      for (std::int64_t e = 0; e < dim; ++e)
        to[row + e] = rounded(static_cast<float>(inverse * number(from[row + e])));
    }
  };
  if (query.dtype() == DType::bf16)
    fill(
        unit.span<bf16>(), query.span<bf16>(), [](bf16 x) { return double(to_float(x)); }, to_bf16);
  else
    fill(
        unit.span<float>(), query.span<float>(), [](float x) { return double(x); },
        [](float x) { return x; });
  return unit;
}

}  // namespace linnet
