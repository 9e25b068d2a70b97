// A file of saved streams, with a right checksum or with an odd first byte as it is.

#include "base/fail.h"
#include "fuzz.h"
#include "generation/snapshot.h"
#include "generation/stream_file.h"
#include "io/file.h"
#include "models.h"

namespace linnet::fuzz {
namespace {

Session& session() {
  static Session all(Model::random(tiny_config({}), 5), 1, {.threads = 1});
  return all;
}

}  // namespace

void answer(std::string_view input) {
  const bool repair = take_choice(input) % 2 == 0;
  std::string bytes(input);
  if (repair && bytes.size() >= 8) {
    const std::string_view body = std::string_view(bytes).substr(0, bytes.size() - 8);
    const std::uint64_t sum = checksum(std::as_bytes(std::span(body)));
    for (std::size_t i = 0; i < 8; ++i) bytes[body.size() + i] = static_cast<char>(sum >> (8 * i));
  }
  const auto path = put(empty_folder() / "streams", bytes);
  const std::vector<SavedStream> streams = read_streams(path);
  write_streams(path, streams);
  if (read_again([&] { return read_streams(path); }).size() != streams.size())
    report("expected as many streams as were written");
  for (const SavedStream& stream : streams) {
    try {
      session().restore(0, stream.state);
    } catch (const Error&) {
      // The state of another model, or none.
    }
  }
}

std::vector<std::string> seeds() {
  const auto path = empty_folder() / "streams";
  std::vector<std::string> result;
  const auto state = session().save(0);
  for (const std::vector<SavedStream>& streams :
       {std::vector<SavedStream>{{3, {1, 2, 3}, state}}, {{0, {}, {}}, {7, {4}, state}, {1, {2}, {}}}}) {
    write_streams(path, streams);
    for (const int choice : {0, 1}) result.push_back(with_choice(choice, read_file(path)));
  }
  return result;
}

std::vector<std::string> words() {
  return {"LINNETSS", "LINNETST", std::string("\0\0\0\0\0\0\0\x80", 8), std::string("\x01\0\0\0\0\0\0\0", 8),
          "\xff\xff\xff\xff\xff\xff\xff\xff"};
}

}  // namespace linnet::fuzz
