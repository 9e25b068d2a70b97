#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "arrays.h"
#include "context.h"
#include "errors.h"
#include "linnet/attention.h"
#include "mask.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace linnet::python {
namespace {

/// One number of a tuple of whole numbers.
std::int64_t number_at(PyObject* tuple, std::size_t i) {
  const std::int64_t number = PyLong_AsLongLong(PyTuple_GetItem(tuple, static_cast<Py_ssize_t>(i)));
  if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return number;
}

/// A view of the memory of a tensor from (address, shape, strides), strides in elements; of None a view of
/// rank 0. linnet.torch has compared types, devices and innermost strides.
template <class T>
View<T> tensor_view(nb::handle described) {
  if (described.is_none()) return {};
  PyObject* const parts = described.ptr();
  if (PyTuple_Check(parts) == 0 || PyTuple_Size(parts) != 3)
    refuse("tensor", "an address, a shape and strides", "another object");
  PyObject* const shape = PyTuple_GetItem(parts, 1);
  PyObject* const strides = PyTuple_GetItem(parts, 2);
  if (PyTuple_Check(shape) == 0 || PyTuple_Check(strides) == 0 ||
      PyTuple_Size(shape) != PyTuple_Size(strides) || PyTuple_Size(shape) > View<T>::max_rank)
    refuse("tensor", "a shape and strides of at most 4 dimensions", "other tuples");
  const auto rank = static_cast<std::size_t>(PyTuple_Size(shape));
  std::array<std::int64_t, View<T>::max_rank> extent{}, stride{};
  for (std::size_t i = 0; i < rank; ++i) {
    extent[i] = number_at(shape, i);
    stride[i] = number_at(strides, i);
  }
  if (rank > 0) stride[rank - 1] = 1;
  PyObject* const address = PyTuple_GetItem(parts, 0);
  const auto pointer = PyLong_AsUnsignedLongLong(address);
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return View<T>(reinterpret_cast<T*>(static_cast<std::uintptr_t>(pointer)), std::span(extent.data(), rank),
                 std::span(stride.data(), rank));
}

/// The same for f32 or, where `narrow`, bf16.
ConstFloatView float_tensor(nb::handle described, bool narrow) {
  if (narrow) return tensor_view<const bf16>(described);
  return tensor_view<const float>(described);
}

/// The memory of a tensor that was made for this call, dense in some order of its axes. The system is asked
/// to give it in large pages: zeroing 32 MB takes ten milliseconds in small ones and three in large ones.
template <class T>
View<T> new_tensor(nb::handle described) {
  const auto view = tensor_view<T>(described);
  constexpr std::uintptr_t large_page = std::uintptr_t{2} << 20;
  const auto first = reinterpret_cast<std::uintptr_t>(view.data());
  const std::uintptr_t begin = (first + large_page - 1) / large_page * large_page;
  const std::uintptr_t end =
      (first + static_cast<std::uintptr_t>(view.size()) * sizeof(T)) / large_page * large_page;
  // Results do not depend on it, so a system that refuses is fine.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  return view;
}

FloatView new_float_tensor(nb::handle described, bool narrow) {
  if (narrow) return new_tensor<bf16>(described);
  return new_tensor<float>(described);
}

/// An attention on the memory of tensors. States are tensors [B, G] too, with the numbers of slot b in row b.
class TensorAttention {
 public:
  explicit TensorAttention(const AttentionOptions& options) : attention_(make_attention(options)) {}

  std::int64_t state_floats(std::int64_t heads, std::int64_t head_dim, std::int64_t value_dim) const {
    return attention_->state_floats({heads, head_dim, value_dim});
  }

  void forward(SharedContext& context, const MaskObject& mask, bool narrow, nb::handle out, nb::handle query,
               nb::handle key, nb::handle value, nb::handle normaliser, nb::handle decay,
               nb::handle key_projection, nb::handle value_projection, nb::handle initial,
               nb::handle final) const {
    AttentionInputs inputs =
        inputs_of(mask, narrow, query, key, value, decay, key_projection, value_projection);
    const auto before = tensor_view<const float>(initial);
    const auto after = tensor_view<float>(final);
    AttentionOutputs outputs{.out = new_float_tensor(out, narrow),
                             .normaliser = tensor_view<float>(normaliser)};
    const Computing turn(context.mutex);
    const auto held = state_of(inputs, before);
    inputs.initial = held.get();
    const auto left = after.rank() == 0 ? nullptr : empty_state(inputs);
    outputs.final = left.get();
    attention_->forward(context.context, outputs, inputs);
    if (left == nullptr) return;
    for (std::int64_t b = 0; b < after.extent(0); ++b) left->save(b, row(after, b));
  }

  void backward(SharedContext& context, const MaskObject& mask, bool narrow, nb::handle grad_query,
                nb::handle grad_key, nb::handle grad_value, nb::handle grad_out, nb::handle query,
                nb::handle key, nb::handle value, nb::handle out, nb::handle normaliser, nb::handle decay,
                nb::handle key_projection, nb::handle value_projection, nb::handle initial,
                nb::handle grad_decay, nb::handle grad_key_projection, nb::handle grad_value_projection,
                nb::handle grad_initial, nb::handle grad_final) const {
    AttentionInputs inputs =
        inputs_of(mask, narrow, query, key, value, decay, key_projection, value_projection);
    const auto before = tensor_view<const float>(initial);
    const AttentionGradients gradients{.query = new_float_tensor(grad_query, narrow),
                                       .key = new_float_tensor(grad_key, narrow),
                                       .value = new_float_tensor(grad_value, narrow),
                                       .decay = tensor_view<float>(grad_decay),
                                       .key_projection = tensor_view<float>(grad_key_projection),
                                       .value_projection = tensor_view<float>(grad_value_projection),
                                       .initial = tensor_view<float>(grad_initial),
                                       .final = tensor_view<const float>(grad_final)};
    const ConstFloatView upper = float_tensor(grad_out, narrow);
    const ConstFloatView result = float_tensor(out, narrow);
    const auto denominators = tensor_view<const float>(normaliser);
    const Computing turn(context.mutex);
    const auto held = state_of(inputs, before);
    inputs.initial = held.get();
    attention_->backward(context.context, gradients, upper, inputs, result, denominators);
  }

  /// The attention that states of a stream belong to.
  const std::shared_ptr<const Attention>& shared() const { return attention_; }

 private:
  static AttentionInputs inputs_of(const MaskObject& mask, bool narrow, nb::handle query, nb::handle key,
                                   nb::handle value, nb::handle decay, nb::handle key_projection,
                                   nb::handle value_projection) {
    return {.query = float_tensor(query, narrow),
            .key = float_tensor(key, narrow),
            .value = float_tensor(value, narrow),
            .mask = mask.mask,
            .decay = tensor_view<const float>(decay),
            .key_projection = tensor_view<const float>(key_projection),
            .value_projection = tensor_view<const float>(value_projection)};
  }

  template <class T>
  static std::span<T> row(View<T> states, std::int64_t b) {
    return {states.data() + b * states.stride(0), static_cast<std::size_t>(states.extent(1))};
  }

  std::unique_ptr<State> empty_state(const AttentionInputs& inputs) const {
    if (inputs.query.rank() != 4 || inputs.value.rank() != 4)
      refuse("attention", "q, k and v of 4 dimensions", std::to_string(inputs.query.rank()));
    return attention_->make_state(inputs.query.extent(0),
                                  {inputs.query.extent(2), inputs.query.extent(3), inputs.value.extent(3)});
  }

  /// The state whose numbers are `numbers`, or null where none are given. Position 1 stands for any but an
  /// empty one.
  std::unique_ptr<State> state_of(const AttentionInputs& inputs, View<const float> numbers) const {
    if (numbers.rank() == 0) return nullptr;
    auto made = empty_state(inputs);
    if (numbers.rank() != 2 || numbers.extent(0) != made->slots())
      refuse("attention", "a state [batch, floats]", "one of other dimensions");
    for (std::int64_t b = 0; b < numbers.extent(0); ++b) made->restore(b, row(numbers, b), 1);
    return made;
  }

  std::shared_ptr<const Attention> attention_;
};

/// A state that lives in the memory of a tensor [B, G], whose numbers it continues. The tensor must outlive
/// it.
class TensorStreams {
 public:
  TensorStreams(const TensorAttention& attention, nb::handle numbers, std::int64_t heads,
                std::int64_t head_dim, std::int64_t value_dim)
      : attention_(attention.shared()) {
    const auto memory = tensor_view<float>(numbers);
    if (memory.rank() != 2 || !memory.dense())
      refuse("attention step", "a dense state [batch, floats]", "another");
    const std::int64_t floats = memory.extent(1);
    if (floats != attention_->state_floats({heads, head_dim, value_dim}))
      refuse(
          "attention step",
          "a state of " + std::to_string(attention_->state_floats({heads, head_dim, value_dim})) + " floats",
          std::to_string(floats));
    const std::span<float> all(memory.data(), static_cast<std::size_t>(memory.size()));
    const std::vector<float> kept(all.begin(), all.end());
    state_ = attention_->make_state(memory.extent(0), {heads, head_dim, value_dim}, 0, all);
    for (std::int64_t b = 0; b < memory.extent(0); ++b) {
      state_->restore(
          b, std::span(kept).subspan(static_cast<std::size_t>(b * floats), static_cast<std::size_t>(floats)),
          1);
      slots_.push_back(b);
    }
  }

  void step(SharedContext& context, nb::handle out, nb::handle query, nb::handle key, nb::handle value,
            nb::handle decay) {
    const auto result = tensor_view<float>(out);
    const auto q = tensor_view<const float>(query), k = tensor_view<const float>(key);
    const auto v = tensor_view<const float>(value), gamma = tensor_view<const float>(decay);
    const Computing turn(context.mutex);
    const std::lock_guard lock(mutex_);
    attention_->step(context.context, result, q, k, v, *state_, slots_, gamma);
  }

 private:
  std::shared_ptr<const Attention> attention_;
  std::unique_ptr<State> state_;
  std::vector<std::int64_t> slots_;
  std::mutex mutex_;
};

/// The numbers of a random feature map, as RandomDraws has them.
nb::dict random_draws(const std::string& map, std::int64_t head_dim, std::int64_t features,
                      const std::string& directions, std::uint64_t seed, int layer) {
  RandomDraws draws = draw_random_features(
      map, head_dim,
      {.features = features, .directions = find_directions(directions), .seed = seed, .layer = layer});
  nb::dict result;
  result["directions"] = numpy_of(std::move(draws.directions));
  result["phases"] = numpy_of(std::move(draws.phases));
  result["signs"] = numpy_of(std::move(draws.signs));
  result["lengths"] = numpy_of(std::move(draws.lengths));
  return result;
}

void step_streams(TensorStreams& self, SharedContext& context, nb::handle out, nb::handle query,
                  nb::handle key, nb::handle value, nb::handle decay) {
  self.step(context, out, query, key, value, decay);
}

}  // namespace

void bind_torch_attention(nb::module_& module) {
  nb::class_<TensorAttention>(module, "TensorAttention",
                              "An attention on the memory of tensors, for linnet.torch. A tensor is "
                              "(address, shape, strides in elements) or None.")
      .def(nb::init<const AttentionOptions&>(), "options"_a)
      .def("state_floats", &TensorAttention::state_floats, "heads"_a, "head_dim"_a, "value_dim"_a,
           "Numbers of a row of a state.")
      .def("forward", usage<&TensorAttention::forward>, "context"_a, "mask"_a, "narrow"_a, "out"_a, "q"_a,
           "k"_a, "v"_a, "normaliser"_a.none(), "decay"_a.none(), "key_projection"_a.none(),
           "value_projection"_a.none(), "initial"_a.none(), "final"_a.none(),
           "Assigns out, normaliser and, where it is given, final [B, G].")
      .def("backward", usage<&TensorAttention::backward>, "context"_a, "mask"_a, "narrow"_a, "grad_q"_a,
           "grad_k"_a, "grad_v"_a, "grad_out"_a, "q"_a, "k"_a, "v"_a, "out"_a, "normaliser"_a,
           "decay"_a.none(), "key_projection"_a.none(), "value_projection"_a.none(), "initial"_a.none(),
           "grad_decay"_a.none(), "grad_key_projection"_a.none(), "grad_value_projection"_a.none(),
           "grad_initial"_a.none(), "grad_final"_a.none(),
           "Assigns the gradients that are given; grad_final [B, G] is read.");
  module.def("random_draws", &random_draws, "map"_a, "head_dim"_a, "features"_a = 0, "directions"_a = "auto",
             "seed"_a = 0, "layer"_a = 0,
             "The directions of a random feature map, a row of `head_dim` numbers each, its phases, and the "
             "signs and "
             "lengths of Hadamard directions, float32.");
  nb::class_<TensorStreams>(
      module, "TensorStreams",
      "The recurrent form of the linear family on a state in the memory of a tensor [B, G].")
      .def(nb::init<const TensorAttention&, nb::handle, std::int64_t, std::int64_t, std::int64_t>(),
           "attention"_a, "state"_a, "heads"_a, "head_dim"_a, "value_dim"_a)
      .def("step", usage<&step_streams>, "context"_a, "out"_a, "q"_a, "k"_a, "v"_a, "decay"_a.none());
}

}  // namespace linnet::python
