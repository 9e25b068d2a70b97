// Uses the vector mathematics alone: nothing here asks for the instruction set.
#include "linnet/feature_map.h"

int main() {
  const float x[3] = {0, 0, 0};
  float y[3] = {};
  linnet::tile_exp(y, x, 3);
  return y[2] > 0.999f && y[2] < 1.001f ? 0 : 1;
}
