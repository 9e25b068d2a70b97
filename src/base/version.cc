#include "linnet/version.h"

#define LINNET_TEXT_OF(value) #value
#define LINNET_TEXT(value) LINNET_TEXT_OF(value)

namespace linnet {

const char* version() {
  return LINNET_TEXT(LINNET_VERSION_MAJOR) "." LINNET_TEXT(LINNET_VERSION_MINOR) "." LINNET_TEXT(
      LINNET_VERSION_PATCH);
}

}  // namespace linnet
