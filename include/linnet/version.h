#ifndef LINNET_VERSION_H_
#define LINNET_VERSION_H_

/* The version of these headers, in C and C++. CMakeLists.txt reads it here. docs/compatibility.md says what a
 * change of each number means. */

#include "linnet/export.h"

#define LINNET_VERSION_MAJOR 0
#define LINNET_VERSION_MINOR 2
#define LINNET_VERSION_PATCH 0

/* One number, so that versions can be compared: 10000 for 1.0.0, 203 for 0.2.3. */
#define LINNET_VERSION (LINNET_VERSION_MAJOR * 10000 + LINNET_VERSION_MINOR * 100 + LINNET_VERSION_PATCH)

#ifdef __cplusplus
namespace linnet {

/// The version of the library that the program runs with, "0.2.0".
LINNET_API const char* version();

}  // namespace linnet
#endif

#endif /* LINNET_VERSION_H_ */
