#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "linnet/tensor.h"

namespace linnet {

/// Memory for values that live no longer than one layer's pass. It grows to the largest pass and is then
/// reused, so that later passes of that size allocate nothing. One object serves one thread.
class Scratch {
 public:
  /// Values live until the Frame that was open when they were taken is gone.
  class Frame {
   public:
    explicit Frame(Scratch& scratch) : scratch_(scratch), used_(scratch.used_) {}
    ~Frame() { scratch_.used_ = used_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Scratch& scratch_;
    std::size_t used_;
  };

  /// [rows, columns], undefined values, 64-byte aligned.
  View<float> take(std::int64_t rows, std::int64_t columns) {
    const std::int64_t size = checked_size(std::array{rows, columns}, sizeof(float));
    if (used_ == slots_.size()) slots_.emplace_back();
    Tensor& slot = slots_[used_++];
    if (slot.size() < size) slot = Tensor::of<float>({size});
    return View<float>(slot.view<float>().data(), {rows, columns});
  }

 private:
  std::vector<Tensor> slots_;
  std::size_t used_ = 0;
};

}  // namespace linnet
