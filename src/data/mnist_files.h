#pragma once

namespace linnet {

/// Names of the two files of a part of MNIST.
struct MnistFiles {
  const char* images;
  const char* labels;
};

inline constexpr MnistFiles mnist_training = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
inline constexpr MnistFiles mnist_test = {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

}  // namespace linnet
