#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// The kind "lines" of open_datasets: lines LABEL<tab>text. The tokens are the bytes of the text, of which
/// those beyond data.length are cut off; a shorter text is padded. Label i is the i-th of the labels in
/// data.path, sorted by their bytes, or those of `class_names`.
Datasets open_lines(const DataOptions& options, const Parts& parts);

/// Texts of any bytes as examples of that kind, without labels. Of the options it takes `length` and
/// `class_names`.
std::unique_ptr<Dataset> unlabelled_texts(std::vector<std::string> texts, const DataOptions& options);

}  // namespace linnet
