#pragma once

#include <memory>
#include <optional>
#include <string>

namespace linnet {

/// What the ranks tell each other about themselves, beside the messages of the program.
enum class Notice : int {
  heartbeat,
  leaving,       ///< the sender leaves in order
  failure,       ///< the sender has failed, for the reason in the text, and ends with the status `about`
  acknowledged,  ///< answers `failure`
  death,         ///< the rank `about` is dead
  reported,      ///< the sentence about the failure or the death has been printed
};

struct ControlMessage {
  int from = 0;
  Notice notice = Notice::heartbeat;
  int about = 0;  ///< a rank, or a status
  std::string text;
};

/// Sends and receives control messages, for the one thread that calls MPI. Those of one sender arrive in
/// order.
class ControlChannel {
 public:
  ControlChannel();  ///< collective over all ranks
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  void send(int to, Notice notice, int about = 0, const std::string& text = {});

  std::optional<ControlMessage> next();

  bool pending() const;  ///< whether messages of this rank have not been taken yet
  bool pending_to(int rank) const;
  void close();  ///< before MPI_Finalize

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace linnet
