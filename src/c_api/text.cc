#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c_api/c_boundary.h"
#include "c_api/handles.h"
#include "data/pairs.h"
#include "linnet/c_api.h"
#include "linnet/tokenizer.h"

struct linnet_text_stream {
  linnet::TextStream stream;
  std::string text = {};  // that of the last call, the caller's until the next one
};

namespace linnet {
namespace {

/// Of what a model is instead of text; empty where its tokens may be text.
std::string_view instead_of_text(const ModelConfig& config) {
  if (config.image_height > 0) return "pictures";
  const std::size_t fields = config.field_sizes().size();
  return fields > 1 ? "several fields" : fields == 0 || config.columns > 0 ? "real numbers" : "";
}

Tokenizer tokenizer_of(const char* operation, const linnet_model* handle) {
  const linnet_model& own = given(operation, "a model", handle);
  const ModelConfig& config = own.model->config();
  if (const std::string_view other = instead_of_text(config); !other.empty())
    fail<UsageError>(operation, "expected a model of text, got one of {}", other);
  const std::scoped_lock lock(own.mutex);
  if (!own.tokenizer) own.tokenizer.emplace(own.model->assets().tokenizer, config.vocabulary);
  return *own.tokenizer;
}

/// A token that models of pairs have, or −1.
int32_t token_of_pairs(const char* operation, const linnet_model* model,
                       int32_t (Tokenizer::*token)() const) {
  return guarded_value<int32_t>(-1, [&] {
    const ModelConfig& config = given(operation, "a model", model).model->config();
    const bool may_have = config.vocabulary == pair_vocabulary && instead_of_text(config).empty();
    return may_have ? (tokenizer_of(operation, model).*token)() : -1;
  });
}

/// Gives the caller what `next` of the stream returns, which the handle keeps until its next call.
template <class Next>
linnet_status lend(linnet_text_stream* stream, const char** text, size_t* bytes, const Next& next) {
  return guarded([&] {
    linnet_text_stream& own = given("text stream", "a stream", stream);
    const char*& found = given("text stream", "where to put the text", text);
    size_t& size = given("text stream", "where to put its size", bytes);
    own.text = next(own.stream);
    found = own.text.c_str();
    size = own.text.size();
  });
}

}  // namespace
}  // namespace linnet

using linnet::elements;
using linnet::given;
using linnet::guarded;
using linnet::hand_over;

linnet_status linnet_model_encode(const linnet_model* model, const char* text, size_t bytes, int32_t* tokens,
                                  size_t capacity, size_t* count) {
  return guarded([&] {
    const std::span<const char> given_text = elements("encode", "text", text, bytes);
    const std::vector<int32_t> found =
        linnet::tokenizer_of("encode", model).encode({given_text.data(), given_text.size()});
    hand_over<int32_t>("encode", "tokens", found, tokens, capacity, count);
  });
}

linnet_status linnet_model_decode(const linnet_model* model, const int32_t* tokens, size_t count, char* text,
                                  size_t capacity, size_t* bytes) {
  return guarded([&] {
    const std::string found =
        linnet::tokenizer_of("decode", model).decode(elements("decode", "tokens", tokens, count));
    hand_over<char>("decode", "bytes", found, text, capacity, bytes);
  });
}

int32_t linnet_model_separator(const linnet_model* model) {
  return linnet::token_of_pairs("separator", model, &linnet::Tokenizer::separator);
}

int32_t linnet_model_end(const linnet_model* model) {
  return linnet::token_of_pairs("end", model, &linnet::Tokenizer::end);
}

linnet_status linnet_text_stream_create(const linnet_model* model, const int32_t* before, size_t count,
                                        linnet_text_stream** stream) {
  return guarded([&] {
    given("text stream", "where to put the stream", stream) = nullptr;
    linnet::Tokenizer tokenizer = linnet::tokenizer_of("text stream", model);
    *stream = new linnet_text_stream{
        linnet::TextStream(std::move(tokenizer), elements("text stream", "tokens", before, count))};
  });
}

void linnet_text_stream_free(linnet_text_stream* stream) { delete stream; }

linnet_status linnet_text_stream_add(linnet_text_stream* stream, int32_t token, const char** text,
                                     size_t* bytes) {
  return linnet::lend(stream, text, bytes, [&](linnet::TextStream& own) { return own.add(token); });
}

linnet_status linnet_text_stream_finish(linnet_text_stream* stream, const char** text, size_t* bytes) {
  return linnet::lend(stream, text, bytes, [](linnet::TextStream& own) { return own.finish(); });
}

linnet_status linnet_text_stream_context(const linnet_text_stream* stream, int32_t* tokens, size_t capacity,
                                         size_t* count) {
  return guarded([&] {
    const std::vector<int32_t> found = given("text stream", "a stream", stream).stream.context();
    hand_over<int32_t>("text stream", "tokens", found, tokens, capacity, count);
  });
}
