#pragma once

#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// The kind "lines" of open_datasets: lines LABEL<tab>text. The tokens are the bytes of the text, of which
/// those beyond data.length are cut off; a shorter text is padded. Label i is the i-th of the labels in
/// data.path, sorted by their bytes.
Datasets open_lines(const DataOptions& options, const Parts& parts);

}  // namespace linnet
