#pragma once

#include <memory>
#include <optional>
#include <string>

namespace linnet {

/// What the ranks tell each other about themselves, beside the messages of the program.
enum class News : int {
  heartbeat,
  goodbye,  ///< the sender leaves in order
  failure,  ///< the sender has failed, for the reason in the text, and ends with the status `about`
  heard,    ///< answers `failure`
  death,    ///< the rank `about` is dead
  spoken,   ///< the sentence about the failure or the death has been printed
};

/// Sends and receives letters, for the one thread that calls MPI. Letters of one sender arrive in order.
class Letters {
 public:
  Letters();  ///< collective over all ranks
  ~Letters();
  Letters(const Letters&) = delete;
  Letters& operator=(const Letters&) = delete;

  void send(int to, News news, int about = 0, const std::string& text = {});

  struct Arrived {
    int from = 0;
    News news = News::heartbeat;
    int about = 0;  ///< a rank, or a status
    std::string text;
  };
  std::optional<Arrived> next();

  bool under_way() const;  ///< whether letters of this rank have not been taken yet
  bool under_way_to(int rank) const;
  void close();  ///< before MPI_Finalize

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace linnet
