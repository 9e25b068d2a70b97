#pragma once

#include <string>
#include <vector>

namespace linnet {

/// A file or folder of the command line, and the option that named it; an empty path where it was not given.
struct NamedPath {
  std::string option, path;
};

/// Throws Error where an output cannot become a file, and UsageError where it is one of the inputs or another
/// output, by whatever spelling or link: known before the work whose result it is to hold, and before
/// anything is overwritten. The folder of a model or a run stands for the files that they consist of, with
/// best/ and all checkpoints, and for the data of the run; another folder for the files in it and below that
/// are data. `command` begins the sentence.
void check_outputs(const char* command, const std::vector<NamedPath>& outputs,
                   const std::vector<NamedPath>& inputs = {});

}  // namespace linnet
