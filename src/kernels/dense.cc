// The only file that knows oneDNN. Large dense products go to its AVX-512 kernels in blocks of rows, each by
// a primitive made for one thread. Products of fewer rows, of strided rows (which oneDNN 2.6 multiplies by a
// plain loop), and all products where those kernels are missing or would round otherwise than ours, go to
// panels.cc. Both read the same packed weights and give the same bits.
#include "kernels/dense.h"

#include <omp.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/threads.h"
#include "kernels/instruction_set.h"
#include "kernels/panels.h"

namespace linnet::kernels {
namespace {

// Below this many rows our own kernel is as fast, and reads the weights once where every block would read
// them again.
constexpr std::int64_t least_library_rows = 128;

// Rows of a block for oneDNN: the larger where there are enough of them to go round.
constexpr std::int64_t large_block = 64;
constexpr std::int64_t small_block = 32;
constexpr std::int64_t rows_for_large_blocks = 4 * large_block;

// Our own kernel's work is cut into pieces of at least about this many multiply-adds, a few microseconds.
constexpr std::int64_t least_work = 1 << 17;

}  // namespace

struct PackedMatrix::Storage {
  PanelLayout layout;
  Tensor packed;
  dnnl::memory weights;  // oneDNN's view of `packed`; empty where oneDNN is not used
};

namespace {

using Dims = dnnl::memory::dims;
constexpr auto f32 = dnnl::memory::data_type::f32;

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// oneDNN uses the OpenMP threads of whoever calls it: one, while this lives.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns) {
  return {Dims{rows, columns}, f32, Dims{columns, 1}};
}

dnnl::memory::desc packed_matrix(const PanelLayout& layout) {
  return {Dims{layout.inputs, layout.outputs}, f32, dnnl::memory::format_tag::BA16a64b};
}

// c [rows, outputs] (=, or += where `add`) a [rows, inputs] · B (+ bias), c and a dense: with strides
// oneDNN 2.6 falls back to a plain loop.
struct ProductKey {
  std::int64_t rows, inputs, outputs;
  bool bias, add;

  auto operator<=>(const ProductKey&) const = default;
};

dnnl::matmul::primitive_desc describe(const ProductKey& key) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.add) {
    dnnl::post_ops after;
    after.append_sum(1.0f);
    attributes.set_post_ops(after);
  }
  const auto a = matrix(key.rows, key.inputs);
  const auto b = packed_matrix({key.inputs, key.outputs});
  const auto c = matrix(key.rows, key.outputs);
#if DNNL_VERSION_MAJOR >= 3
  if (key.bias) return {cpu(), a, b, matrix(1, key.outputs), c, attributes};
  return {cpu(), a, b, c, attributes};
#else
  if (key.bias) return {dnnl::matmul::desc(a, b, matrix(1, key.outputs), c), attributes, cpu()};
  return {dnnl::matmul::desc(a, b, c), attributes, cpu()};
#endif
}

// A primitive, shared by all threads.
struct Product {
  explicit Product(const ProductKey& key) {
    const OneThread one;
    const auto description = describe(key);
    scratchpad = description.scratchpad_desc();
    primitive = dnnl::matmul(description);
  }
  dnnl::matmul primitive;
  dnnl::memory::desc scratchpad;
};

const Product& shared_product(const ProductKey& key) {
  static std::mutex mutex;
  static std::map<ProductKey, std::unique_ptr<Product>> products;
  const std::lock_guard lock(mutex);
  auto& product = products[key];
  if (!product) product = std::make_unique<Product>(key);
  return *product;
}

// A primitive with one thread's own arguments, so that a call only sets pointers.
class Call {
 public:
  explicit Call(const ProductKey& key)
      : product_(&shared_product(key)),
        a_(matrix(key.rows, key.inputs), cpu(), nullptr),
        c_(matrix(key.rows, key.outputs), cpu(), nullptr),
        scratchpad_(product_->scratchpad, cpu(), nullptr) {
    arguments_ = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_DST, c_}, {DNNL_ARG_SCRATCHPAD, scratchpad_}};
    if (key.bias) {
      bias_ = dnnl::memory(matrix(1, key.outputs), cpu(), nullptr);
      arguments_.emplace(DNNL_ARG_BIAS, bias_);
    }
  }

  void operator()(float* c, const float* a, const dnnl::memory& b, const float* bias) {
    thread_local const dnnl::stream stream(cpu());
    a_.set_data_handle(const_cast<float*>(a));
    c_.set_data_handle(c);
    if (bias_) bias_.set_data_handle(const_cast<float*>(bias));
    scratchpad_.set_data_handle(scratchpad(product_->scratchpad.get_size()));
    arguments_[DNNL_ARG_WEIGHTS] = b;
    const OneThread one;
    product_->primitive.execute(stream, arguments_);
  }

 private:
  static void* scratchpad(std::size_t bytes) {
    thread_local Tensor memory;
    if (memory.bytes() < bytes) memory = Tensor::of<std::uint8_t>({static_cast<std::int64_t>(bytes)});
    return memory.raw();
  }

  const Product* product_;
  dnnl::memory a_, c_, bias_, scratchpad_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

Call& call_for(const ProductKey& key) {
  thread_local std::map<ProductKey, Call> calls;
  const auto found = calls.find(key);
  if (found != calls.end()) return found->second;
  return calls.emplace(key, Call(key)).first->second;
}

// Whether oneDNN has its AVX-512 kernels for these extents and rounds as ours do, with bias and sum, in a try
// with few rows and as many panels as matter.
bool try_library(std::int64_t inputs, std::int64_t outputs) {
  if (inputs == 0 || outputs == 0 || dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx512_core) return false;
  constexpr std::int64_t rows = 7;
  if (outputs > 3 * PanelLayout::columns) outputs = 2 * PanelLayout::columns + outputs % PanelLayout::columns;
  const PanelLayout layout{inputs, outputs};
  Tensor packed = Tensor::of<float>({layout.floats()});
  Tensor a = Tensor::of<float>({rows, inputs}), b = Tensor::of<float>({inputs, outputs});
  Tensor bias = Tensor::of<float>({outputs}), before = Tensor::of<float>({rows, outputs});
  std::uint32_t state = 1;
  for (Tensor* tensor : {&a, &b, &bias, &before})
    for (float& x : tensor->span<float>())
      x = static_cast<float>(static_cast<std::int32_t>(state = state * 1664525u + 1013904223u)) * 0x1p-31f;
  pack_panels(packed.span<float>().data(), layout, b.span<float>().data(), outputs, 1);
  const dnnl::memory weights(packed_matrix(layout), cpu(), packed.raw());
  for (const bool with_bias : {false, true}) {
    for (const bool add : {false, true}) {
      const ProductKey key{rows, inputs, outputs, with_bias, add};
      Tensor ours = before.clone(), theirs = before.clone();
      Epilogue epilogue;
      if (with_bias) epilogue.bias = bias.view<float>();
      if (add) epilogue.residual = ours.view<float>();
      multiply_panels(ours.view<float>(), a.view<float>(), packed.span<float>().data(), layout, 0,
                      layout.panels(), epilogue);
      try {
        const OneThread one;
        if (std::strstr(describe(key).impl_info_str(), "brg") == nullptr) return false;
        Call{key}(theirs.span<float>().data(), a.span<float>().data(), weights, bias.span<float>().data());
      } catch (const dnnl::error&) {
        return false;
      }
      if (std::memcmp(ours.raw(), theirs.raw(), ours.bytes()) != 0) return false;
    }
  }
  return true;
}

bool library_agrees(std::int64_t inputs, std::int64_t outputs) {
  static std::mutex mutex;
  static std::map<std::pair<std::int64_t, std::int64_t>, bool> answers;
  const std::lock_guard lock(mutex);
  const auto key = std::pair(inputs, outputs);
  const auto found = answers.find(key);
  if (found != answers.end()) return found->second;
  return answers[key] = try_library(inputs, outputs);
}

// Rows of a block for oneDNN.
std::int64_t block_rows(std::int64_t rows) {
  return rows >= rows_for_large_blocks ? large_block : small_block;
}

float* block_sums(std::int64_t floats) {
  thread_local Tensor memory;
  if (memory.size() < floats) memory = Tensor::of<float>({floats});
  return memory.span<float>().data();
}

// One block of rows by oneDNN, which adds the bias, and a residual that is c itself; the rest is ours.
void multiply_block(View<float> c, View<const float> a, const PackedMatrix::Storage& b, Epilogue epilogue) {
  const std::int64_t rows = a.extent(0), outputs = b.layout.outputs;
  const bool in_place = epilogue.residual.data() == c.data();
  const bool add = in_place && epilogue.activation == Activation::none;
  float* sums = in_place && !add ? block_sums(rows * outputs) : c.data();
  call_for({rows, b.layout.inputs, outputs, epilogue.bias.data() != nullptr, add})(sums, a.data(), b.weights,
                                                                                   epilogue.bias.data());
  epilogue.bias = {};
  if (add) epilogue.residual = {};
  if (epilogue.residual.data() != nullptr || epilogue.activation != Activation::none)
    finish_rows(c, sums, outputs, epilogue);
}

Epilogue rows_of(Epilogue epilogue, std::int64_t begin, std::int64_t end) {
  if (epilogue.residual.data() != nullptr) epilogue.residual = epilogue.residual.slice(0, begin, end);
  return epilogue;
}

}  // namespace

void limit_library(LibraryLimit limit) {
  // oneDNN's own variable may ask for less than AVX-512 already.
  if (limit == LibraryLimit::avx512_core && std::getenv("DNNL_MAX_CPU_ISA") != nullptr) return;
  dnnl::set_max_cpu_isa(limit == LibraryLimit::avx512_core ? dnnl::cpu_isa::avx512_core
                        : limit == LibraryLimit::avx2      ? dnnl::cpu_isa::avx2
                                                           : dnnl::cpu_isa::sse41);
}

PackedMatrix::PackedMatrix(std::int64_t inputs, std::int64_t outputs)
    : inputs_(inputs), outputs_(outputs), storage_(std::make_unique<Storage>()) {
  instruction_set();  // throws where LINNET_ISA cannot be obeyed
  storage_->layout = {inputs, outputs};
  storage_->packed = Tensor::of<float>({storage_->layout.floats()});
  if (library_agrees(inputs, outputs))
    storage_->weights = dnnl::memory(packed_matrix(storage_->layout), cpu(), storage_->packed.raw());
}

PackedMatrix::~PackedMatrix() = default;
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept = default;

void PackedMatrix::pack(View<const float> b) {
  assert(b.extent(0) == inputs_ && b.extent(1) == outputs_);
  pack_panels(storage_->packed.span<float>().data(), storage_->layout, b.data(), b.stride(0), 1);
}

void PackedMatrix::pack_transposed(View<const float> w) {
  assert(w.extent(0) == outputs_ && w.extent(1) == inputs_);
  pack_panels(storage_->packed.span<float>().data(), storage_->layout, w.data(), 1, w.stride(0));
}

std::size_t PackedMatrix::bytes() const { return storage_->packed.bytes(); }

void multiply(View<float> c, View<const float> a, const PackedMatrix& b, const Epilogue& epilogue) {
  const PackedMatrix::Storage& storage = b.storage();
  const PanelLayout& layout = storage.layout;
  const std::int64_t rows = a.extent(0);
  assert(a.extent(1) == b.inputs() && c.extent(0) == rows && c.extent(1) == b.outputs());
  if (rows == 0 || b.outputs() == 0) return;

  // First the blocks for oneDNN; what is left of the rows is cut along panels, then along rows.
  const bool dense = a.stride(0) == b.inputs() && c.stride(0) == b.outputs() &&
                     (epilogue.residual.data() != c.data() || epilogue.residual.stride(0) == b.outputs());
  const std::int64_t block = block_rows(rows);
  const std::int64_t blocks = storage.weights && dense && rows >= least_library_rows ? rows / block : 0;
  const std::int64_t done = blocks * block;
  const std::int64_t left = rows - done;
  const std::int64_t work = left * layout.inputs * layout.panels() * PanelLayout::columns;
  const std::int64_t pieces = left == 0 ? 0 : std::clamp<std::int64_t>(work / least_work, 1, 8 + left / 48);
  const std::int64_t column_pieces = std::min(pieces, layout.panels());
  const std::int64_t row_pieces =
      std::min(pieces == 0 ? 0 : (pieces + column_pieces - 1) / column_pieces, left);

  const float* packed = storage.packed.span<float>().data();
  parallel_for(blocks + column_pieces * row_pieces, [&](std::int64_t i) {
    if (i < blocks) {
      const std::int64_t begin = i * block, end = begin + block;
      multiply_block(c.slice(0, begin, end), a.slice(0, begin, end), storage, rows_of(epilogue, begin, end));
      return;
    }
    const std::int64_t row_piece = (i - blocks) / column_pieces, column_piece = (i - blocks) % column_pieces;
    const std::int64_t begin = done + left * row_piece / row_pieces;
    const std::int64_t end = done + left * (row_piece + 1) / row_pieces;
    multiply_panels(c.slice(0, begin, end), a.slice(0, begin, end), packed, layout,
                    layout.panels() * column_piece / column_pieces,
                    layout.panels() * (column_piece + 1) / column_pieces, rows_of(epilogue, begin, end));
  });
}

void prepare_multiply(std::int64_t rows, const PackedMatrix& b, const Epilogue& epilogue) {
  if (!b.storage().weights || rows < least_library_rows) return;
  const bool bias = epilogue.bias.data() != nullptr;
  for (const bool add : {false, true}) call_for({block_rows(rows), b.inputs(), b.outputs(), bias, add});
}

}  // namespace linnet::kernels
