// Uses attention without a model, and never asks for the instruction set.
#include <vector>

#include "linnet/attention.h"

int main() {
  const auto attention = linnet::make_attention({});
  const std::vector<float> row(4, 1.0f);
  std::vector<float> out(4);
  linnet::AttentionInputs inputs;
  inputs.query = inputs.key = inputs.value = linnet::View<const float>(row.data(), {1, 1, 1, 4});
  attention->forward({.out = linnet::View<float>(out.data(), {1, 1, 1, 4})}, inputs);
  return out[0] > 0.99f && out[0] < 1.01f ? 0 : 1;
}
