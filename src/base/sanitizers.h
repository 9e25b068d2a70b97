#pragma once

// The sanitizers that a file is compiled with; g++ and clang say so in different words.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LINNET_ADDRESS_SANITIZER
#endif
#if __has_feature(thread_sanitizer)
#define LINNET_THREAD_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define LINNET_ADDRESS_SANITIZER
#endif
#if defined(__SANITIZE_THREAD__)
#define LINNET_THREAD_SANITIZER
#endif
