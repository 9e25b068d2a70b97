// A safetensors file: read from memory and from a file, and as the weights of a model. The first byte chooses
// between the bytes as they are, and a header up to the first byte of 0 whose length and digests are made
// right.

#include <algorithm>
#include <map>
#include <stdexcept>

#include "base/fail.h"
#include "fuzz.h"
#include "io/digest.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/files.h"
#include "models.h"

namespace linnet::fuzz {
namespace {

std::string length_of(std::uint64_t size) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(size >> (8 * i));
  return bytes;
}

std::uint64_t whole(const Json& value) {
  if (!value.is_number_unsigned()) throw std::invalid_argument("no whole number");
  return value.get<std::uint64_t>();
}

/// Replaces the digests that a header has by those of its tensors, as docs/format.md describes them. Headers
/// that cannot be read stay as they are.
std::string with_digests(const std::string& header, std::string_view data) try {
  Json json = parse_json(header, "header");
  if (!json.is_object() || !json.contains("__metadata__") || !json["__metadata__"].contains("xxh3"))
    return header;
  Json metadata = Json::object();
  for (const auto& [key, value] : json["__metadata__"].items())
    if (!key.starts_with("xxh3")) metadata[key] = value;
  std::map<std::string, std::string> lines;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    const std::uint64_t begin = whole(entry.at("data_offsets").at(0)),
                        end = whole(entry.at("data_offsets").at(1));
    if (begin > end || end > data.size()) return header;
    const std::string digest = digest_of(data.substr(begin, end - begin));
    Shape shape;
    for (const Json& extent : entry.at("shape")) shape.push_back(static_cast<std::int64_t>(whole(extent)));
    metadata["xxh3:" + name] = digest;
    lines[name] =
        fmt::format("{}\n{}\n{}\n{}\n", name, entry.at("dtype").get<std::string>(), to_string(shape), digest);
  }
  std::string list;
  for (const auto& [name, text] : lines) list += text;
  std::map<std::string, std::string> others;
  for (const auto& [key, value] : metadata.items())
    if (!key.starts_with("xxh3")) others[key] = value.get<std::string>();
  for (const auto& [key, value] : others) list += fmt::format("{}\n{}\n", key, value);
  metadata["xxh3"] = digest_of(list);
  json["__metadata__"] = metadata;
  return json.dump();
} catch (const std::exception&) {
  return header;
}

void read_all(const Safetensors& file) {
  for (const std::string& name : file.names()) {
    if (!file.contains(name)) report("expected a tensor that is listed to be there");
    try {
      if (file.tensor(name).shape() != file.shape(name)) report("expected a tensor of the listed shape");
    } catch (const Error&) {
      // Of another type, of too many dimensions or damaged; the others can be read.
    }
  }
  file.check_digests();
}

const ModelConfig& model_config() {
  static const ModelConfig config = tiny_config({});
  return config;
}

std::string weights(const std::vector<std::string>& settings) {
  const auto& folder = empty_folder();
  Model::random(tiny_config(settings))->save(folder);
  return read_file(folder / weights_file);
}

/// A file with its length left out and a byte of 0 behind the header.
std::string with_open_header(const std::string& file) {
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<std::uint8_t>(file[i]);
  return file.substr(8, length) + '\0' + file.substr(8 + length);
}

}  // namespace

void answer(std::string_view input) {
  const bool repair = take_choice(input) % 2 != 0;
  std::string bytes(input);
  if (repair) {
    const std::size_t end = std::min(input.find('\0'), input.size());
    const std::string_view data = input.substr(std::min(end + 1, input.size()));
    const std::string header = with_digests(std::string(input.substr(0, end)), data);
    bytes = length_of(header.size()) + header + std::string(data);
  }
  read_all(Safetensors::parse(bytes, "input"));

  static const std::string config = [] {
    const auto& folder = empty_folder();
    Model::random(model_config())->save(folder);
    return read_file(folder / config_file);
  }();
  const auto& folder = empty_folder();
  const auto path = put(folder / weights_file, bytes);
  read_all(Safetensors::read(path));
  put(folder / config_file, config);
  try {
    Model::load(folder);
  } catch (const Error&) {
    // Most files are no weights of this model.
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> result;
  const float numbers[] = {1, 2, 3, 4};
  const std::int64_t integers[] = {5, -6};
  const NamedTensor tensors[] = {{"x", DType::f32, {2, 2}, numbers},
                                 {"ids", DType::i64, {2}, integers},
                                 {"half", DType::bf16, {2, 1, 2}, numbers},
                                 {"none", DType::u8, {3, 0}, nullptr},
                                 {"one", DType::f64, {}, integers}};
  std::vector<std::string> files = {encode_safetensors(tensors, {{"format", "pt"}}), weights({}),
                                    weights({"model.weights=bf16"}), weights({"model.weights=int8"})};
  const std::string plain =
      R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"__metadata__":{"k":"v"}})";
  files.push_back(length_of(plain.size()) + plain + "ab");
  for (const std::string& file : files) {
    result.push_back(with_choice(0, file));
    result.push_back(with_choice(1, with_open_header(file)));
  }
  return result;
}

std::vector<std::string> words() {
  return {"\"dtype\"",
          "\"shape\"",
          "\"data_offsets\"",
          "\"__metadata__\"",
          "\"xxh3\"",
          "\"xxh3:x\"",
          "F32",
          "BF16",
          "F64",
          "I32",
          "I64",
          "U8",
          "I8",
          "F8_E4M3",
          "BOOL",
          "[0,",
          ",0]",
          "9223372036854775807",
          "18446744073709551615",
          "e308",
          ":{",
          "},"};
}

}  // namespace linnet::fuzz
