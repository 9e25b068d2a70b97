#pragma once

#include <nanobind/nanobind.h>

namespace linnet::python {

/// AttentionOptions, feature maps, similarities, and the tables of what there is.
void bind_attention_options(nanobind::module_& module);

}  // namespace linnet::python
