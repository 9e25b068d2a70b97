#pragma once

namespace linnet {

/// Which parts of the data are opened; the pointers to the others in `Datasets` are null.
struct Parts {
  bool training = true;
  bool validation = true;
  bool test = true;
};

}  // namespace linnet
