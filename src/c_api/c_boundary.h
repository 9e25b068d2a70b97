#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <type_traits>

#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

#include "base/fail.h"
#include "linnet/c_api.h"

// What every function of the C interface is made of. A function that can fail returns `guarded(body)`; one
// that returns a number returns `guarded_value(otherwise, body)`. Inside the body, each pointer goes through
// `given`, each array through `elements`, and each struct of options through `options_of`, so that nothing
// that a caller passes is used unchecked.

namespace linnet {

/// Keeps the sentence for `linnet_error` of this thread, and returns `status`. Never throws.
linnet_status c_failed(linnet_status status, const char* sentence) noexcept;

/// Runs `body` and turns whatever it throws into a status.
template <class Body>
linnet_status guarded(const Body& body) {
  try {
    body();
    return LINNET_OK;
  } catch (const UsageError& caught) {
    return c_failed(LINNET_USAGE, caught.what());
  } catch (const OutOfMemoryError& caught) {
    return c_failed(LINNET_OUT_OF_MEMORY, caught.what());
  } catch (const std::bad_alloc&) {
    return c_failed(LINNET_OUT_OF_MEMORY, "[memory] expected more memory than there is");
  } catch (const std::length_error&) {  // of a container of more elements than memory has
    return c_failed(LINNET_OUT_OF_MEMORY, "[memory] expected more memory than there is");
  } catch (const std::exception& caught) {
    return c_failed(LINNET_FAILED, caught.what());
#ifdef __GLIBCXX__
  } catch (const abi::__forced_unwind&) {
    throw;  // pthread_cancel: the C library ends the process where it is not let through
#endif
  } catch (...) {
    return c_failed(LINNET_FAILED, "[internal] expected an exception with a message, got one without");
  }
}

/// The number that `body` returns, or `otherwise` where it throws.
template <class Number, class Body>
Number guarded_value(Number otherwise, const Body& body) {
  Number result = otherwise;
  return guarded([&] { result = body(); }) == LINNET_OK ? result : otherwise;
}

/// Throws UsageError for NULL.
template <class T>
T& given(const char* operation, const char* what, T* pointer) {
  if (pointer == nullptr) fail<UsageError>(operation, "expected {}, got NULL", what);
  return *pointer;
}

/// `count` elements, of which NULL holds none. Throws UsageError for more than any memory holds, which a
/// negative number that was converted is.
template <class T>
std::span<T> elements(const char* operation, const char* what, T* pointer, std::size_t count) {
  constexpr std::size_t most =
      static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(T);
  if (count > most) fail<UsageError>(operation, "expected at most {} of {}, got {}", most, what, count);
  if (count > 0) given(operation, what, pointer);
  return {pointer, count};
}

/// `count` rows of `width` elements each, one behind the other, as `elements` gives them.
template <class T>
std::span<T> rows(const char* operation, const char* what, T* pointer, std::size_t count, std::size_t width) {
  if (width > 0 && count > std::numeric_limits<std::size_t>::max() / width)
    fail<UsageError>(operation, "expected fewer {}, got {} times {}", what, count, width);
  return elements(operation, what, pointer, count * width);
}

/// Tells a caller how many elements there are, and copies them where its memory holds them.
template <class T>
void hand_over(const char* operation, const char* what, std::span<const T> from, T* memory,
               std::size_t capacity, std::size_t* size) {
  const std::span<T> to = elements(operation, "where to put them", memory, capacity);
  given(operation, "where to put the size", size) = from.size();
  if (to.empty()) return;
  if (to.size() < from.size())
    fail<UsageError>(operation, "expected memory for {} {}, got {}", from.size(), what, to.size());
  std::ranges::copy(from, to.begin());
}

/// No struct of options will have more bytes than these: a larger size was never set.
inline constexpr std::size_t most_option_bytes = 4096;

/// Throws UsageError where `size`, the first member of a struct of options, cannot be: below `least`, the
/// bytes that the struct's first version had, or absurdly large.
inline void check_option_size(const char* operation, std::size_t size, std::size_t least) {
  if (size < least || size > most_option_bytes)
    fail<UsageError>(operation, "expected options whose size is {} … {} bytes, got {}", least,
                     most_option_bytes, size);
}

/// The caller's options, of a struct that begins with its size in bytes, `std::size_t size`. NULL gives the
/// defaults. A caller that was compiled with an older header gives fewer members; the defaults stand for the
/// others. One compiled with a newer header gives more, which have to be 0 here. Throws UsageError where they
/// are not, and for sizes that cannot be. Structs have no padding, so that every byte has a meaning.
template <class Options>
Options options_of(const char* operation, const Options* options, const Options& defaults,
                   std::size_t least) {
  static_assert(std::is_trivially_copyable_v<Options> && offsetof(Options, size) == 0);
  if (options == nullptr) return defaults;
  // The bytes behind the caller's size are not read: what is copied is bounded by it.
  std::size_t size = 0;
  std::memcpy(&size, options, sizeof size);
  check_option_size(operation, size, least);
  const auto* bytes = reinterpret_cast<const unsigned char*>(options);
  for (std::size_t i = sizeof(Options); i < size; ++i)
    if (bytes[i] != 0)
      fail<UsageError>(operation,
                       "expected options of at most {} bytes from this version, got more that are set",
                       sizeof(Options));
  Options result = defaults;
  std::memcpy(&result, bytes, std::min(size, sizeof(Options)));
  return result;
}

/// Writes the defaults into the caller's struct of `size` bytes, its size included; members of a newer header
/// become 0. Throws UsageError for NULL and for sizes that cannot be.
template <class Options>
void write_defaults(const char* operation, Options* options, std::size_t size, Options defaults,
                    std::size_t least) {
  given(operation, "where to put the options", options);
  check_option_size(operation, size, least);
  defaults.size = size;
  std::memset(static_cast<void*>(options), 0, size);
  std::memcpy(static_cast<void*>(options), &defaults, std::min(size, sizeof(Options)));
}

}  // namespace linnet
