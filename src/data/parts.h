#pragma once

namespace linnet {

/// Which of the two parts of the data are opened; the pointer to the other one in `Datasets` is null.
struct Parts {
  bool training = true;
  bool validation = true;
};

}  // namespace linnet
