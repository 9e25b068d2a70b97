#pragma once

/// Marks a member class of an exported class (linnet/export.h) that the shared library does not export.
#if defined(__GNUC__)
#define LINNET_HIDDEN __attribute__((visibility("hidden")))
#else
#define LINNET_HIDDEN
#endif
