// What a program outside of Linnet does with it: loads a model, draws tokens, passes a feature map of its
// own, catches errors.
//   consumer MODEL
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "linnet/linnet.h"

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "expected %s\n", what);
  ++failures;
}

/// φ(x) = x², to see that classes derived here work in the library.
class Square : public linnet::FeatureMap {
 public:
  std::string name() const override { return "square"; }
  void forward(linnet::View<float> y, linnet::View<const float> x,
               const linnet::TileContext&) const override {
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = x(i, j) * x(i, j);
  }
  void backward(linnet::View<float> dx, linnet::View<const float> dy, linnet::View<const float> x,
                linnet::View<const float>, const linnet::TileContext&) const override {
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t j = 0; j < x.extent(1); ++j) dx(i, j) = 2 * x(i, j) * dy(i, j);
  }
};

/// With one token linear attention gives the token's own value.
void attends_with_a_map_of_its_own() {
  linnet::AttentionOptions options;
  options.linear.feature_map = std::make_shared<Square>();
  options.linear.epsilon = 0;
  const auto attention = linnet::make_attention(options);
  const std::vector<float> query = {1, 2}, key = {3, 4}, value = {5, -6};
  std::vector<float> out(2);
  linnet::AttentionInputs inputs;
  inputs.query = linnet::View<const float>(query.data(), {1, 1, 1, 2});
  inputs.key = linnet::View<const float>(key.data(), {1, 1, 1, 2});
  inputs.value = linnet::View<const float>(value.data(), {1, 1, 1, 2});
  inputs.mask = linnet::Mask::causal();
  linnet::Context context;
  attention->forward(context, {.out = linnet::View<float>(out.data(), {1, 1, 1, 2})}, inputs);
  expect(out[0] > 4.999f && out[0] < 5.001f && out[1] > -6.001f && out[1] < -5.999f, "out = value");
}

/// A session that is moved goes on where it was.
void draws_tokens(const char* folder) {
  const auto model = linnet::Model::load(folder);
  linnet::Session first(model, 1), second(model, 1);
  std::int32_t expected = 0, drawn = 0;
  for (int i = 0; i < 10; ++i) {
    first.step({&expected, 1});
    second.step({&drawn, 1});
    expect(expected == drawn, "the same token of the same seed");
    linnet::Session moved(std::move(second));
    second = std::move(moved);
  }
}

void streams_text() {
  linnet::TextStream text(linnet::Tokenizer("", 256));
  expect(text.add(0xc3).empty() && text.add(0xa9) == "\xc3\xa9", "a whole character");
}

void catches_errors() {
  bool caught = false;
  try {
    linnet::find_family("no such family");
  } catch (const linnet::UsageError& error) {
    caught = std::strstr(error.what(), "no such family") != nullptr;
  }
  expect(caught, "a UsageError that names the family");
  caught = false;
  try {
    linnet::Model::load("/no/such/folder");
  } catch (const linnet::Error&) {
    caught = true;
  }
  expect(caught, "an Error for a folder that is not there");
}

void knows_its_types() {
  const std::shared_ptr<const linnet::FeatureMap> map =
      linnet::random_feature_map("favor", 4, {.features = 16});
  expect(dynamic_cast<const linnet::LogScaledMap*>(map.get()) != nullptr, "favor to be a LogScaledMap");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  char version[32];
  std::snprintf(version, sizeof version, "%d.%d.%d", LINNET_VERSION_MAJOR, LINNET_VERSION_MINOR,
                LINNET_VERSION_PATCH);
  expect(std::strcmp(version, linnet::version()) == 0, "the version of the headers");
  attends_with_a_map_of_its_own();
  draws_tokens(arguments[1]);
  streams_text();
  catches_errors();
  knows_its_types();
  return failures == 0 ? 0 : 1;
}
