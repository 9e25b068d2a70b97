#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace linnet {

/// While it lives, subnormal numbers are 0 on the calling thread, results and operands: a state that fades to
/// nothing would make every step many times slower otherwise. Does nothing where the processor has no such
/// switch.
class FlushSubnormals {
 public:
#if defined(__SSE__)
  FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | flush_results | flush_operands); }
  ~FlushSubnormals() { _mm_setcsr(before_); }
#else
  FlushSubnormals() = default;
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

#if defined(__SSE__)
 private:
  static constexpr unsigned flush_results = 0x8000, flush_operands = 0x0040;
  unsigned before_;
#endif
};

}  // namespace linnet
