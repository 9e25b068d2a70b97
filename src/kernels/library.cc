// The only file that knows oneDNN. Its primitives are made for one thread, with a scratchpad of the calling
// thread's own, and shared by all threads.
#include "kernels/library.h"

#include <omp.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>

#include "base/context_impl.h"
#include "base/pages.h"
#include "base/workspace.h"
#include "kernels/instruction_set.h"

namespace linnet::kernels {
namespace {

using Dims = dnnl::memory::dims;

// What several threads share is never destroyed: one of them may still compute when the program ends.
const dnnl::engine& cpu() {
  static const auto& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
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

constexpr auto f32 = dnnl::memory::data_type::f32;

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns) {
  return {Dims{rows, columns}, f32, Dims{columns, 1}};
}

dnnl::memory::desc panels_of(const LibraryProduct& product) {
  return {Dims{product.inputs, product.outputs}, f32, dnnl::memory::format_tag::BA16a64b};
}

dnnl::matmul::primitive_desc describe(const LibraryProduct& product) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (product.add) {
    dnnl::post_ops after;
    after.append_sum(1.0f);
    attributes.set_post_ops(after);
  }
  const auto a = matrix(product.rows, product.inputs);
  const auto b = panels_of(product);
  const auto c = matrix(product.rows, product.outputs);
  const auto bias = matrix(1, product.outputs);
#if DNNL_VERSION_MAJOR >= 3
  if (product.bias) return {cpu(), a, b, bias, c, attributes};
  return {cpu(), a, b, c, attributes};
#else
  if (product.bias) return {dnnl::matmul::desc(a, b, bias, c), attributes, cpu()};
  return {dnnl::matmul::desc(a, b, c), attributes, cpu()};
#endif
}

// A primitive, shared by all threads.
struct Primitive {
  explicit Primitive(const LibraryProduct& product) {
    const OneThread one;
    const auto description = describe(product);
    scratchpad = description.scratchpad_desc();
    primitive = dnnl::matmul(description);
  }
  dnnl::matmul primitive;
  dnnl::memory::desc scratchpad;
};

const Primitive& shared_primitive(const LibraryProduct& product) {
  static std::mutex mutex;
  static auto& primitives = *new std::map<LibraryProduct, std::unique_ptr<Primitive>>;
  const std::lock_guard lock(mutex);
  auto& primitive = primitives[product];
  if (!primitive) {
    // oneDNN 2.6 crashes where it finds no memory for a primitive's code. That much is asked for before, and
    // throws std::bad_alloc.
    { const LazyPages of_code(std::size_t{16} << 20); }
    primitive = std::make_unique<Primitive>(product);
  }
  return *primitive;
}

// A primitive with one thread's own arguments, so that a call only sets pointers.
class Call {
 public:
  explicit Call(const LibraryProduct& product)
      : primitive_(&shared_primitive(product)),
        a_(matrix(product.rows, product.inputs), cpu(), nullptr),
        b_(panels_of(product), cpu(), nullptr),
        c_(matrix(product.rows, product.outputs), cpu(), nullptr),
        scratchpad_(primitive_->scratchpad, cpu(), nullptr) {
    arguments_ = {
        {DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}, {DNNL_ARG_SCRATCHPAD, scratchpad_}};
    if (product.bias) {
      bias_ = dnnl::memory(matrix(1, product.outputs), cpu(), nullptr);
      arguments_.emplace(DNNL_ARG_BIAS, bias_);
    }
  }

  void operator()(const dnnl::stream& stream, Context& own, float* c, const float* a, const float* panels,
                  const float* bias) {
    Workspace workspace(own);
    a_.set_data_handle(const_cast<float*>(a));
    b_.set_data_handle(const_cast<float*>(panels));
    c_.set_data_handle(c);
    if (bias_) bias_.set_data_handle(const_cast<float*>(bias));
    scratchpad_.set_data_handle(
        workspace.array<std::byte>(static_cast<std::int64_t>(primitive_->scratchpad.get_size())).data());
    const OneThread one;
    primitive_->primitive.execute(stream, arguments_);
  }

 private:
  const Primitive* primitive_;
  dnnl::memory a_, b_, c_, bias_, scratchpad_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// What a context of one thread keeps.
struct Calls {
  dnnl::stream stream{cpu()};
  std::map<LibraryProduct, Call> of_products;

  Call& call(const LibraryProduct& product) {
    const auto found = of_products.find(product);
    if (found != of_products.end()) return found->second;
    return of_products.emplace(product, Call(product)).first->second;
  }
};

}  // namespace

void run_library(Context& context, const LibraryProduct& product, float* c, const float* a,
                 const float* panels, const float* bias) {
  Calls& calls = context.impl().kept<Calls>();
  calls.call(product)(calls.stream, context, c, a, panels, bias);
}

namespace {

/// oneDNN's name of its kernel for the product; empty where it has none.
std::string implementation(const LibraryProduct& product) {
  if (product.inputs == 0 || product.outputs == 0) return {};
  if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx512_core) return {};
  static std::mutex mutex;
  static auto& names = *new std::map<LibraryProduct, std::string>;
  const std::lock_guard lock(mutex);
  const auto found = names.find(product);
  if (found != names.end()) return found->second;
  try {
    const OneThread one;
    return names[product] = describe(product).impl_info_str();
  } catch (const dnnl::error&) {
    return names[product] = {};
  }
}

/// Whether vdpbf16ps is faster than two multiply-adds of f32. Intel's cores begin one in two cycles and four
/// such multiply-adds meanwhile (measured on Emerald Rapids), AMD's as many of either. Beside matrix units
/// products hardly use it.
bool multiplies_pairs_fast() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return !__builtin_cpu_is("intel") || has_matrix_units();
#else
  return true;
#endif
}

}  // namespace

bool library_is_fast(const LibraryProduct& product) {
  return implementation(product).find("brg") != std::string::npos;
}

// oneDNN asks the system for the right to use the units before it names them.
bool has_matrix_units() { return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_amx; }

bool has_fast_instructions_for(WeightType type) {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  if (type == WeightType::bf16) return isa >= dnnl::cpu_isa::avx512_core_bf16 && multiplies_pairs_fast();
  return type == WeightType::int8 && isa >= dnnl::cpu_isa::avx512_core_vnni;
}

void limit_library(LibraryLimit limit) {
  // oneDNN's own variable may ask for less than AVX-512 already.
  if (limit == LibraryLimit::avx512_core && std::getenv("DNNL_MAX_CPU_ISA") != nullptr) return;
  dnnl::set_max_cpu_isa(limit == LibraryLimit::avx512_core ? dnnl::cpu_isa::avx512_core
                        : limit == LibraryLimit::avx2      ? dnnl::cpu_isa::avx2
                                                           : dnnl::cpu_isa::sse41);
}

}  // namespace linnet::kernels
