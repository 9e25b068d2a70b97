#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/fail.h"
#include "c_api/c_boundary.h"
#include "linnet/c_api.h"
#include "linnet/model.h"
#include "linnet/tokenizer.h"

struct linnet_model {
  std::shared_ptr<const linnet::Model> model;
  mutable std::mutex mutex = {};  // of the tokenizer, which is made where it is used first
  mutable std::optional<linnet::Tokenizer> tokenizer = {};
};

namespace linnet {

/// The caller's options, or the defaults for NULL.
linnet_session_options session_options_of(const char* operation, const linnet_session_options* options);

/// The streams that a caller names, each at most once; all of the session's, of which there have to be
/// `count`, for NULL.
template <class AnySession, class Run>
void with_streams(const char* operation, const AnySession& session, const std::int64_t* streams,
                  std::size_t count, const Run& run) {
  if (streams == nullptr) return run();
  if (count > static_cast<std::size_t>(session.streams()))
    fail<UsageError>(operation, "expected at most the session's {} streams, got {}", session.streams(),
                     count);
  run(elements(operation, "streams", streams, count));
}

}  // namespace linnet
