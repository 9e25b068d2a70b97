// `attend` with states, normalisers and the recurrent form, compared with plain loops in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "apps/bench_rows.h"
#include "apps/refusal.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "linnet/tensor.h"

namespace linnet {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAreArray;
using Doubles = std::vector<double>;

constexpr std::int64_t batch = 2, length = 37, heads = 3, head_dim = 8, value_dim = 5, rank = 4;
constexpr unsigned seed = 12;

/// A family as loops see it: which keys a query sees, and what a key weighs for it.
struct Loops {
  std::string family;
  Strings options = {};
  std::function<bool(std::int64_t i, std::int64_t j)> sees = [](std::int64_t i, std::int64_t j) {
    return j <= i;
  };
  /// The tokens of 0 … position − 1 that a state holds; none for the linear family, whose state are sums.
  std::function<bool(std::int64_t t, std::int64_t position)> holds = nullptr;
};

std::vector<Loops> recurrent_families() {
  const auto all = [](std::int64_t, std::int64_t) { return true; };
  return {{"linear", {"--state-sums", "plain"}},
          {"softmax", {}, [](std::int64_t i, std::int64_t j) { return j <= i; }, all},
          {"local",
           {"--local-window", "6"},
           [](std::int64_t i, std::int64_t j) { return j <= i && i - j <= 6; },
           [](std::int64_t t, std::int64_t position) { return t >= position - 7; }},
          {"strided",
           {"--stride", "5"},
           [](std::int64_t i, std::int64_t j) { return j <= i && (i - j < 5 || (i - j) % 5 == 0); },
           all},
          {"strided",
           {"--stride", "5", "--pattern", "fixed", "--summary", "2"},
           [](std::int64_t i, std::int64_t j) { return j <= i && (j / 5 == i / 5 || j % 5 >= 3); },
           [](std::int64_t t, std::int64_t position) { return t / 5 == position / 5 || t % 5 >= 3; }}};
}

class AttendStates : public testing::Test {
 protected:
  AttendStates() {
    RecordProperty("seed", static_cast<int>(seed));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (Tensor* tensor : {&q_, &k_, &v_, &grad_out_})
      for (float& number : tensor->span<float>()) number = normal(random);
  }

  using Named = std::vector<std::pair<std::string, Tensor>>;

  static Tensor rows_of(const Tensor& tensor, std::int64_t begin, std::int64_t end) {
    const Shape& shape = tensor.shape();
    Tensor part = Tensor::of<float>({batch, end - begin, heads, shape[3]});
    for (std::int64_t b = 0; b < batch; ++b)
      std::copy_n(tensor.view<float>().at(b, begin), (end - begin) * heads * shape[3],
                  part.view<float>().at(b, 0));
    return part;
  }

  /// The file of tokens begin … end − 1 with more tensors, and what `attend` writes for it.
  Safetensors attend(const Strings& words, std::int64_t begin, std::int64_t end, const Named& more = {}) {
    write(begin, end, more);
    succeed(joined({"attend", in_, "--out", out_}, words));
    return Safetensors::read(out_);
  }
  void write(std::int64_t begin, std::int64_t end, const Named& more = {}) {
    Named all;
    all.emplace_back("q", rows_of(q_, begin, end));
    all.emplace_back("k", rows_of(k_, begin, end));
    all.emplace_back("v", rows_of(v_, begin, end));
    all.emplace_back("grad_out", rows_of(grad_out_, begin, end));
    write_all(all, more);
  }
  void write_all(const Named& all, const Named& more) {
    std::vector<NamedTensor> named;
    for (const Named* part : {&all, &more})
      for (const auto& [name, tensor] : *part)
        named.push_back({name, tensor.dtype(), tensor.shape(), tensor.raw()});
    write_safetensors(in_, named, {});
  }

  /// What a call continues, from what the call before it wrote.
  static Named continued(const Safetensors& file) {
    Named state;
    state.emplace_back("initial_state", file.tensor("final_state"));
    state.emplace_back("initial_position", file.tensor("final_position"));
    return state;
  }

  static double phi(double x) { return x > 0 ? x + 1 : std::exp(x); }
  double weight(const std::string& family, std::int64_t b, std::int64_t i, std::int64_t j,
                std::int64_t h) const {
    double sum = 0;
    for (std::int64_t e = 0; e < head_dim; ++e) {
      const double q = q_.view<float>()(b, i, h, e), k = k_.view<float>()(b, j, h, e);
      sum += family == "linear" ? phi(q) * phi(k) : q * k;
    }
    return family == "linear" ? sum : std::exp(sum / std::sqrt(static_cast<double>(head_dim)));
  }

  /// out [B, end − begin, H, M] and normalisers [B, end − begin, H] of those tokens, after all before them.
  std::pair<Doubles, Doubles> expected(const Loops& loops, std::int64_t begin, std::int64_t end) const {
    const bool linear = loops.family == "linear";
    Doubles out, normalisers;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::int64_t h = 0; h < heads; ++h) {
          double total = linear ? 1e-6 : 0;
          Doubles row(value_dim);
          for (std::int64_t j = 0; j <= i; ++j) {
            if (!loops.sees(i, j)) continue;
            const double w = weight(loops.family, b, i, j, h);
            total += w;
            for (std::int64_t m = 0; m < value_dim; ++m) row[m] += w * v_.view<float>()(b, j, h, m);
          }
          for (const double number : row) out.push_back(number / total);
          normalisers.push_back(linear ? total : std::log(total));
        }
      }
    }
    return {out, normalisers};
  }

  /// The states behind `position` tokens, as the documentation lays them out.
  Doubles expected_states(const Loops& loops, std::int64_t position) const {
    Doubles states;
    for (std::int64_t b = 0; b < batch; ++b) {
      if (loops.holds == nullptr) {
        const auto sums = [&](std::int64_t columns, const auto& value) {
          for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t f = 0; f < head_dim; ++f)
              for (std::int64_t m = 0; m < columns; ++m) {
                double sum = 0;
                for (std::int64_t t = 0; t < position; ++t)
                  sum += phi(k_.view<float>()(b, t, h, f)) * value(t, h, m);
                states.push_back(sum);
              }
        };
        sums(value_dim, [&](std::int64_t t, std::int64_t h, std::int64_t m) {
          return static_cast<double>(v_.view<float>()(b, t, h, m));
        });
        sums(1, [](std::int64_t, std::int64_t, std::int64_t) { return 1.0; });
        continue;
      }
      for (const Tensor* tensor : {&k_, &v_})
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t t = 0; t < position; ++t)
            for (std::int64_t e = 0; loops.holds(t, position) && e < tensor->shape()[3]; ++e)
              states.push_back(tensor->view<float>()(b, t, h, e));
    }
    return states;
  }

  static void expect_near(const Tensor& found, const Doubles& wanted, double tolerance) {
    ASSERT_EQ(found.size(), std::ssize(wanted)) << to_string(found.shape());
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      error += std::pow(found.span<float>()[i] - wanted[i], 2);
      norm += std::pow(wanted[i], 2);
    }
    EXPECT_LE(std::sqrt(error / norm), tolerance);
  }

  void refuses_options(const Strings& options, const Strings& words, int status = usage) {
    refuses(status, joined({"attend", in_, "--out", out_}, options), words);
  }

  TemporaryFolder folder_;
  std::string in_ = (folder_ / "in.safetensors").string(), out_ = (folder_ / "out.safetensors").string();
  Tensor q_ = Tensor::of<float>({batch, length, heads, head_dim}), k_ = Tensor::of<float>(q_.shape()),
         v_ = Tensor::of<float>({batch, length, heads, value_dim}), grad_out_ = Tensor::of<float>(v_.shape());
};

TEST_F(AttendStates, EveryFormAndEveryCutGivesTheNumbersOfPlainLoops) {
  constexpr std::int64_t cut = 18;
  for (const Loops& loops : recurrent_families()) {
    for (const char* first_form : {"parallel", "recurrent"}) {
      for (const char* second_form : {"parallel", "recurrent"}) {
        SCOPED_TRACE(loops.family + " " + std::to_string(loops.options.size()) + " " + first_form +
                     ", then " + second_form);
        const Strings words =
            joined({"--family", loops.family, "--mask", "causal", "--final-state"}, loops.options);
        const Safetensors first = attend(joined(words, {"--form", first_form}), 0, cut);
        expect_near(first.tensor("out"), expected(loops, 0, cut).first, 1e-6);
        expect_near(first.tensor("final_state"), expected_states(loops, cut),
                    loops.holds == nullptr ? 1e-6 : 0);
        EXPECT_EQ(first.shape("final_state")[0], batch);
        EXPECT_THAT(first.tensor("final_position").span<std::int64_t>(), ElementsAre(cut, cut));

        const Safetensors second =
            attend(joined(words, {"--form", second_form}), cut, length, continued(first));
        expect_near(second.tensor("out"), expected(loops, cut, length).first, 1e-6);
        expect_near(second.tensor("final_state"), expected_states(loops, length),
                    loops.holds == nullptr ? 1e-6 : 0);
        EXPECT_THAT(second.tensor("final_position").span<std::int64_t>(), ElementsAre(length, length));
      }
    }
  }
}

TEST_F(AttendStates, DecaysAndLogScaledMapsAgreeInBothForms) {
  for (const Strings& options :
       {Strings{"--decay", "0.9"}, Strings{"--feature-map", "favor", "--features", "64"}}) {
    const Strings words = joined({"--mask", "causal", "--final-state"}, options);
    const Safetensors whole = attend(words, 0, length),
                      steps = attend(joined(words, {"--form", "recurrent"}), 0, length);
    const auto wide = [](const Tensor& tensor) {
      return Doubles(tensor.span<float>().begin(), tensor.span<float>().end());
    };
    expect_near(steps.tensor("out"), wide(whole.tensor("out")), 1e-5);
    const Safetensors first = attend(words, 0, 20);
    Tensor tail = attend(joined(words, {"--form", "recurrent"}), 20, length, continued(first)).tensor("out");
    expect_near(tail, wide(rows_of(whole.tensor("out"), 20, length)), 1e-5);
  }
}

TEST_F(AttendStates, NormalisersAreThoseOfPlainLoops) {
  for (const Loops& loops : recurrent_families()) {
    SCOPED_TRACE(loops.family);
    const Strings words =
        joined({"--family", loops.family, "--mask", "causal", "--normalisers"}, loops.options);
    const Safetensors file = attend(words, 0, length);
    EXPECT_EQ(file.shape("normaliser"), (Shape{batch, length, heads}));
    expect_near(file.tensor("normaliser"), expected(loops, 0, length).second, 1e-6);
  }
}

TEST_F(AttendStates, NormalisersOfFamiliesWithoutStatesAreThoseOfPlainLoops) {
  Tensor projection = Tensor::of<float>({1, rank, length});
  for (std::int64_t i = 0; i < projection.size(); ++i)
    projection.span<float>()[static_cast<std::size_t>(i)] =
        static_cast<float>(std::sin(0.7 * static_cast<double>(i)));
  Named projections;
  projections.emplace_back("key_projection", projection.clone());
  projections.emplace_back("value_projection", projection.clone());
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  // Σ_j exp(scale q_i·key(j)) over `keys` keys other than `but`.
  const auto total = [&](std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t keys, std::int64_t but,
                         const auto& key) {
    double sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      double dot = 0;
      for (std::int64_t e = 0; e < head_dim; ++e) dot += q_.view<float>()(b, i, h, e) * key(j, e);
      if (j != but) sum += std::exp(scale * dot);
    }
    return sum;
  };
  Doubles kernel, linformer, lsh;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::int64_t h = 0; h < heads; ++h) {
        kernel.push_back(1e-6 + total(b, i, h, length, -1, [&](std::int64_t j, std::int64_t e) {
                           return static_cast<double>(k_.view<float>()(b, j, h, e));
                         }));
        linformer.push_back(std::log(total(b, i, h, rank, -1, [&](std::int64_t r, std::int64_t e) {
          double sum = 0;
          for (std::int64_t t = 0; t < length; ++t)
            sum += static_cast<double>(projection.view<float>()(0, r, t)) * k_.view<float>()(b, t, h, e);
          return sum;
        })));
        // One chunk of one bucket holds all tokens; a token meets itself only where it meets no other.
        lsh.push_back(std::log(total(b, i, h, length, i, [&](std::int64_t j, std::int64_t e) {
          double norm = 0;
          for (std::int64_t f = 0; f < head_dim; ++f) norm += std::pow(q_.view<float>()(b, j, h, f), 2);
          return q_.view<float>()(b, j, h, e) / std::sqrt(norm);
        })));
      }
    }
  }
  const auto normaliser = [&](const Strings& words) {
    succeed(joined({"attend", in_, "--out", out_, "--normalisers"}, words));
    return Safetensors::read(out_).tensor("normaliser");
  };
  write(0, length, projections);
  expect_near(normaliser({"--family", "kernel"}), kernel, 1e-6);
  expect_near(normaliser({"--family", "linformer"}), linformer, 1e-6);
  Named queries;
  queries.emplace_back("q", rows_of(q_, 0, length));
  queries.emplace_back("v", rows_of(v_, 0, length));
  write_all(queries, {});
  expect_near(normaliser({"--family", "lsh", "--buckets", "1", "--chunk", "64"}), lsh, 1e-6);
}

TEST_F(AttendStates, GradientsOfStatesChainTwoCallsToOne) {
  constexpr std::int64_t cut = 21;
  for (const Loops& loops : recurrent_families()) {
    SCOPED_TRACE(loops.family);
    const Strings words = joined({"--family", loops.family, "--mask", "causal"}, loops.options);
    const Strings both = joined(words, {"--gradients"});
    const Safetensors whole = attend(both, 0, length);
    const Safetensors first = attend(joined(words, {"--final-state"}), 0, cut);
    const Safetensors second = attend(both, cut, length, continued(first));
    Named handed;
    handed.emplace_back("grad_final_state", second.tensor("dinitial_state"));
    const Safetensors head = attend(both, 0, cut, handed);
    EXPECT_FALSE(head.contains("dinitial_state"));
    for (const char* name : {"dq", "dk", "dv"}) {
      SCOPED_TRACE(name);
      const auto wide = [&](std::int64_t begin, std::int64_t end) {
        const Tensor part = rows_of(whole.tensor(name), begin, end);
        return Doubles(part.span<float>().begin(), part.span<float>().end());
      };
      expect_near(head.tensor(name), wide(0, cut), 1e-5);
      expect_near(second.tensor(name), wide(cut, length), 1e-5);
    }
  }
}

TEST_F(AttendStates, EntriesOfUnequalLengthHaveRowsWithZerosBehind) {
  const Strings words = {"--family", "softmax", "--mask", "causal", "--key-lengths", "10,6", "--final-state"};
  const Safetensors first = attend(words, 0, 10);
  constexpr std::int64_t token = heads * (head_dim + value_dim);
  ASSERT_EQ(first.shape("final_state"), (Shape{batch, 10 * token}));
  EXPECT_THAT(first.tensor("final_position").span<std::int64_t>(), ElementsAre(10, 6));
  const Tensor state = first.tensor("final_state");
  for (std::int64_t i = 6 * token; i < 10 * token; ++i) EXPECT_EQ(state.view<float>()(1, i), 0);
  const Safetensors second =
      attend({"--family", "softmax", "--mask", "causal", "--final-state"}, 10, 11, continued(first));
  EXPECT_THAT(second.tensor("final_position").span<std::int64_t>(), ElementsAre(11, 7));
  // The second entry sees its first six tokens and the new one.
  double total = 0, sum = 0;
  for (const std::int64_t j : {0, 1, 2, 3, 4, 5, 10}) {
    const double w = weight("softmax", 1, 10, j, 0);
    total += w;
    sum += w * v_.view<float>()(1, j, 0, 0);
  }
  EXPECT_NEAR(second.tensor("out").view<float>()(1, 0, 0, 0), sum / total, 1e-6);
}

TEST_F(AttendStates, ARowAtPositionZeroIsEmpty) {
  for (const char* form : {"parallel", "recurrent"}) {
    Named more;
    more.emplace_back("initial_state", Tensor::of<float>({batch, heads * head_dim * (value_dim + 1)}));
    for (float& number : more[0].second.span<float>()) number = 7;
    more.emplace_back("initial_position", Tensor::of<std::int64_t>({batch}));
    const Safetensors file =
        attend({"--mask", "causal", "--state-sums", "plain", "--form", form}, 0, length, more);
    expect_near(file.tensor("out"), expected(recurrent_families()[0], 0, length).first, 1e-6);
  }
}

TEST_F(AttendStates, TheResultNamesWhatItWrote) {
  write(0, length);
  const Json result = json_of(succeed({"attend", in_, "--out", out_, "--mask", "causal", "--final-state",
                                       "--normalisers", "--gradients", "--json"}));
  EXPECT_EQ(result["form"], "parallel");
  EXPECT_THAT(keys_of(result["tensors"]), UnorderedElementsAreArray(Safetensors::read(out_).names()));
  for (const auto& [name, shape] : result["tensors"].items())
    EXPECT_EQ(shape.get<Shape>(), Safetensors::read(out_).shape(name)) << name;
  // Compensated sums and what they rounded off.
  EXPECT_EQ(result["tensors"]["final_state"], (Json{batch, 2 * heads * head_dim * (value_dim + 1)}));
  const Json steps = json_of(succeed({"attend", in_, "--out", out_, "--mask", "causal", "--form", "recurrent",
                                      "--compare", "linear", "--json"}));
  EXPECT_EQ(steps["form"], "recurrent");
  EXPECT_FALSE(steps.contains("denominators"));
  EXPECT_LT(steps["compare"]["relative_error"].get<double>(), 1e-6);
}

TEST_F(AttendStates, WhatHasNoStepOrNoStateIsRefused) {
  write(0, length);
  const Strings steps = {"--form", "recurrent"}, causal = {"--form", "recurrent", "--mask", "causal"};
  refuses_options(steps, {"--mask causal", "--form recurrent", "full"});
  refuses_options(joined(steps, {"--mask", "window", "--window", "3,0"}), {"--mask causal", "window"});
  refuses_options(joined(causal, {"--key-lengths", "37,20"}), {"--mask causal", "--key-lengths"});
  refuses_options(joined(causal, {"--segments", "0,20,37"}), {"--mask causal", "--segments"});
  refuses_options(joined(causal, {"--gradients"}), {"--form parallel", "--gradients"});
  refuses_options(joined(causal, {"--normalisers"}), {"--form parallel", "--normalisers"});
  for (const char* family : {"kernel", "linformer", "lsh"}) {
    refuses_options(joined(causal, {"--family", family}),
                    {"linear, softmax, local, strided", "--form recurrent", family});
    refuses_options({"--mask", "causal", "--final-state", "--family", family},
                    {"linear, softmax, local, strided", "--final-state", family});
  }
  refuses_options({"--form", "stepwise"}, {"--form", "stepwise"});
  refuses_options({"--family", "softmax", "--state-sums", "plain"},
                  {"--family linear", "--state-sums", "softmax"});
  refuses_options({"--final-state"}, {"causal or prefix", "full"}, failed);
  refuses_options(joined(causal, {"--family", "local", "--local-window", "3,1"}), {"right 0", "1"}, failed);
  refuses_options(joined(causal, {"--family", "strided"}), {"stride"}, failed);
  Named narrow;
  for (const char* name : {"q", "k", "v"}) narrow.emplace_back(name, Tensor(DType::bf16, q_.shape()));
  write_all(narrow, {});
  refuses_options(causal, {"f32", "--form recurrent", "bf16"}, failed);
}

TEST_F(AttendStates, StatesThatDoNotFitAreRefused) {
  const Strings causal = {"--mask", "causal"}, softmax = {"--mask", "causal", "--family", "softmax"};
  const std::int64_t sums = 2 * heads * head_dim * (value_dim + 1), token = heads * (head_dim + value_dim);
  const auto with = [&](const char* name, Tensor state, const char* other, Tensor positions) {
    Named more;
    if (name != nullptr) more.emplace_back(name, std::move(state));
    if (other != nullptr) more.emplace_back(other, std::move(positions));
    write(0, length, more);
  };
  const auto positions = [](std::int64_t first, std::int64_t second) {
    Tensor tensor = Tensor::of<std::int64_t>({2});
    tensor.span<std::int64_t>()[0] = first;
    tensor.span<std::int64_t>()[1] = second;
    return tensor;
  };
  const auto state = [&](std::int64_t floats) { return Tensor::of<float>({batch, floats}); };
  with("initial_state", state(sums), nullptr, {});
  refuses_options(causal, {"initial_state and initial_position", "no initial_position"}, failed);
  with(nullptr, {}, "initial_position", positions(1, 1));
  refuses_options(causal, {"initial_state and initial_position", "no initial_state"}, failed);
  with("initial_state", state(sums / 2), "initial_position", positions(1, 1));
  refuses_options(causal, {"initial_state", "f32 [2, 288]", "f32 [2, 144]"}, failed);
  refuses_options({"--mask", "full", "--state-sums", "plain"}, {"causal or prefix", "full"}, failed);
  with("initial_state", state(sums), "initial_position", positions(-1, 1));
  refuses_options(causal, {"initial_position", "-1"}, failed);
  with("initial_state", state(sums), "initial_position", positions(1, (std::int64_t{1} << 53) + 1));
  refuses_options(causal, {"initial_position", "2^53"}, failed);
  with("initial_state", state(sums), "initial_position", positions(1, std::int64_t{1} << 53));
  refuses_options(joined(causal, {"--compare", "softmax"}), {"--compare linear", "initial_state", "softmax"},
                  failed);
  refuses_options(softmax, {"initial_state", "f32 [2, 351280", "f32 [2, 288]"}, failed);
  with("initial_state", state(4 * token), "initial_position", positions(3, 5));
  refuses_options(softmax, {"initial_state", "f32 [2, 195]", "f32 [2, 156]"}, failed);
  refuses_options({"--mask", "causal", "--family", "kernel"}, {"kernel", "state"}, failed);
  with("initial_state", state(sums), "initial_position", Tensor::of<float>({2}));
  refuses_options(causal, {"initial_position", "i64 or i32 [batch]", "f32 [2]"}, failed);
  with("initial_state", state(sums), "initial_position", Tensor::of<std::int64_t>({3}));
  refuses_options(causal, {"initial_position", "2 batch entries", "3"}, failed);
  with("grad_final_state", state(sums / 2 - 1), nullptr, {});
  refuses_options(joined(causal, {"--gradients"}), {"gradient of the final state", "144", "[2, 143]"},
                  failed);
  with("grad_final_state", positions(1, 1), nullptr, {});
  refuses_options(joined(causal, {"--gradients"}), {"grad_final_state", "f32", "i64"}, failed);
}

}  // namespace
}  // namespace linnet
