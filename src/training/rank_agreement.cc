#include "training/rank_agreement.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

#include "base/fail.h"
#include "comm/gather.h"
#include "io/digest.h"
#include "io/json.h"
#include "linnet/dataset.h"
#include "linnet/instruction_set.h"
#include "linnet/version.h"
#include "model/config.h"
#include "training/config.h"
#include "training/examples.h"
#include "training/trainer.h"

namespace linnet {
namespace {

std::string text_of(const std::vector<Shared>& things) {
  Json list = Json::array();
  for (const Shared& thing : things) list.push_back({as_json_text(thing.name), as_json_text(thing.value)});
  return list.dump();
}

std::string of_rank(Communicator& ranks, std::string own, int rank) {
  broadcast(ranks, own, rank);
  return own;
}

[[noreturn]] void refuse(const std::string& first_text, const std::string& other_text, int rank) {
  const Json first = parse_json(first_text, "rank 0"), other = parse_json(other_text, "another rank");
  for (std::size_t i = 0; i < std::min(first.size(), other.size()) && first[i][0] == other[i][0]; ++i)
    if (first[i] != other[i])
      fail<UsageError>("ranks", "expected all ranks to have {} = {} as rank 0, got {} on rank {}",
                       first[i][0].get<std::string>(), first[i][1].get<std::string>(),
                       other[i][1].get<std::string>(), rank);
  fail<UsageError>("ranks", "expected all ranks to run the same program, got another one on rank {}", rank);
}

template <class T>
void add(Digest& digest, std::span<const T> numbers) {
  digest.add(std::as_bytes(numbers));
}

void add_settings(std::vector<Shared>& all, const Json& table, const std::string& group) {
  for (const auto& [key, value] : table.items()) {
    const std::string name = group.empty() ? key : group + "." + key;
    if (value.is_object())
      add_settings(all, value, name);
    else
      all.push_back({name, value.dump()});
  }
}

/// The keys of a model and of its training, with their values.
std::vector<Shared> shared_settings(const ModelConfig& config, const TrainingOptions& options) {
  ModelConfig model = config;
  TrainingOptions training = options;
  Options table;
  add_options(table, model);
  add_options(table, training);
  std::vector<Shared> all;
  add_settings(all, table.to_json(), "");
  return all;
}

}  // namespace

std::string description_of(Context& context, const Dataset& dataset, const ModelConfig& config) {
  constexpr std::int64_t most = 8;
  const std::int64_t size = dataset.size(), count = std::min(size, most);
  Examples examples;
  Digest digest;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = [&](std::int64_t) { return i * size / count; };
    const Batch batch = examples.read(context, dataset, config, 1, index,
                                      {Random(0, Draw::masking, evaluation_masks), index});
    add(digest, batch.inputs);
    add(digest, batch.targets);
    add(digest, batch.key_lengths);
    add(digest, batch.values);
    add(digest, batch.value_targets);
    add(digest, batch.labels);
    add(digest, batch.positions);
    add(digest, batch.source);
    add(digest, batch.source_lengths);
  }
  return fmt::format("{} examples with the digest {}", size, digest.text());
}

void require_agreement(Communicator& ranks, const std::vector<Shared>& own) {
  if (ranks.size() == 1) return;
  const std::string text = text_of(own), digest = digest_of(text);
  std::string all(digest.size() * static_cast<std::size_t>(ranks.size()), ' ');
  ranks.all_gather(std::as_bytes(std::span(digest)), std::as_writable_bytes(std::span(all)));
  const auto of = [&](int rank) {
    return std::string_view(all).substr(static_cast<std::size_t>(rank) * digest.size(), digest.size());
  };
  for (int rank = 1; rank < ranks.size(); ++rank) {
    if (of(rank) == of(0)) continue;
    const std::string first = of_rank(ranks, text, 0), other = of_rank(ranks, text, rank);
    refuse(first, other, rank);
  }
}

void require_same_task(Communicator& ranks, const RunTask& task) {
  if (ranks.size() == 1) return;
  std::vector<Shared> things = {{"the version", version()},
                                {"the instruction set (LINNET_ISA)", instruction_set()},
                                {"resume", task.resume ? "true" : "false"}};
  std::ranges::move(shared_settings(task.config, task.options), std::back_inserter(things));
  things.push_back({"training data", task.training_data});
  things.push_back({"validation data", task.validation_data});
  things.push_back({"an initial model", task.adapted ? "true" : "false"});
  require_agreement(ranks, things);
}

void require_same_numbers(Communicator& ranks, const Trainer::Impl& trainer) {
  if (ranks.size() == 1) return;
  std::vector<Shared> state = {{"updates", std::to_string(trainer.steps())}};
  const auto add = [&](const char* name, std::span<const float> numbers) {
    state.push_back({name, "numbers with the digest " + digest_of(std::as_bytes(numbers))});
  };
  add("parameters", trainer.values());
  add("first moments", trainer.optimiser().first_moments().span<float>());
  add("second moments", trainer.optimiser().second_moments().span<float>());
  require_agreement(ranks, state);
}

}  // namespace linnet
