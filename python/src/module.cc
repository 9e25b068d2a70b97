#include "errors.h"

NB_MODULE(_core, module) {
  using namespace linnet::python;
  module.doc() = "Linnet's C++ library. The package linnet is its interface; this module may change.";
  bind_errors(module);
  bind_arrays(module);
  bind_context(module);
  bind_mask(module);
  bind_attention(module);
  bind_reference(module);
  bind_model(module);
  bind_session(module);
  bind_number_session(module);
  bind_series(module);
  bind_tokenizer(module);
  bind_dataset(module);
  bind_torch_attention(module);
  bind_training(module);
}
