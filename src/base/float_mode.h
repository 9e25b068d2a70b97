#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace linnet {

/// The calling thread's rounding mode and treatment of subnormal numbers; 0 where the processor has no such
/// register. The threads of a context take over their caller's, so that results do not depend on them.
inline unsigned float_mode() {
#if defined(__SSE__)
  return _mm_getcsr();
#else
  return 0;
#endif
}
inline void set_float_mode([[maybe_unused]] unsigned mode) {
#if defined(__SSE__)
  _mm_setcsr(mode);
#endif
}

/// While it lives, subnormal numbers are 0 on the calling thread and in the loops that it shares out, results
/// and operands: a state that fades to nothing would make every step many times slower otherwise. Does
/// nothing where the processor has no such switch.
class FlushSubnormals {
 public:
  FlushSubnormals() : before_(float_mode()) { set_float_mode(before_ | flush_results | flush_operands); }
  ~FlushSubnormals() { set_float_mode(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  static constexpr unsigned flush_results = 0x8000, flush_operands = 0x0040;
  unsigned before_;
};

}  // namespace linnet
