#include "layers/later_field.h"

#include <algorithm>

#include "base/workspace.h"
#include "kernels/activation.h"
#include "kernels/elementwise.h"

namespace linnet {
namespace {

constexpr kernels::Activation activation = kernels::Activation::gelu;

}  // namespace

LaterField::LaterField(ParameterTable& table, const std::string& name, std::int64_t width,
                       std::int64_t before, std::int64_t values)
    : width_(width),
      table_(table.add(name + ".before.weight", {before, width}, normal(0.5), true)),
      mix_(table, name + ".mix", width, width),
      head_(OutputHead::categorical(table, name + ".head", width, values, nullptr)) {}

void LaterField::Saved::reserve(std::int64_t rows, std::int64_t width) {
  for (Tensor* tensor : {&input, &before, &after}) *tensor = Tensor::of<float>({rows, width});
}

void LaterField::pack(Context& context, const ParameterValues& parameters, bool training) {
  table_values_ = parameters.of(table_);
  mix_.pack(context, parameters, training);
  head_->pack(context, parameters, training);
}

void LaterField::unpack(std::span<float> parameters) const {
  mix_.unpack(parameters);
  head_->unpack(parameters);
}

void LaterField::forward(Context& context, View<float> parameters, View<float> u,
                         const kernels::FieldIds& tokens, Saved* saved) const {
  const std::int64_t rows = u.extent(0);
  kernels::embedding_add(context, u, table_values_, tokens);
  Workspace workspace(context);
  const auto part = [&](Tensor Saved::*tensor) {
    return saved != nullptr ? (saved->*tensor).view<float>().slice(0, 0, rows) : workspace.take(rows, width_);
  };
  if (saved != nullptr) std::copy_n(u.data(), u.size(), part(&Saved::input).data());
  const View<float> before = part(&Saved::before), after = part(&Saved::after);
  mix_.forward(context, before, u);
  kernels::activation_forward(context, after, before, activation);
  head_->forward(context, parameters, after);
}

void LaterField::backward(Context& context, View<float> du, View<const float> dparameters,
                          const kernels::FieldIds& tokens, const Saved& saved,
                          std::span<float> gradients) const {
  const std::int64_t rows = du.extent(0);
  const auto part = [&](const Tensor& tensor) { return tensor.view<float>().slice(0, 0, rows); };
  Workspace workspace(context);
  const View<float> inner = workspace.take(rows, width_), own = workspace.take(rows, width_);
  head_->backward(context, inner, dparameters, part(saved.after), gradients);
  kernels::activation_backward(context, inner, inner, part(saved.before), activation);
  mix_.backward(context, own, inner, part(saved.input), gradients);
  kernels::add(context, du, du, own);
  kernels::embedding_backward(context, table_.of(gradients), du, tokens);
}

}  // namespace linnet
