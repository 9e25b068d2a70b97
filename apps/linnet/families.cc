#include <fmt/core.h>

#include "commands.h"
#include "linnet/attention.h"
#include "report.h"

namespace linnet {
namespace {

void run(bool json) {
  Json families = Json::array(), maps = Json::array(), similarities = Json::array();
  for (const FamilyInfo& row : family_table())
    families.push_back({{"family", row.name},
                        {"masks", row.masks},
                        {"recurrent", row.recurrent},
                        {"flops", row.cost},
                        {"state", row.state}});
  for (const auto table : {feature_map_table(), random_feature_map_table()})
    for (const FeatureMapInfo& row : table)
      maps.push_back({{"feature_map", row.name},
                      {"formula", row.formula},
                      {"features", row.features},
                      {"non_negative", row.non_negative}});
  for (const SimilarityInfo& row : similarity_table())
    similarities.push_back(
        {{"similarity", row.name}, {"formula", row.formula}, {"parameters", row.parameters}});
  if (json) {
    fmt::print("{}\n",
               Json{{"families", families}, {"feature_maps", maps}, {"similarities", similarities}}.dump(2));
    return;
  }
  fmt::print("Attention families (flops: a query and head, forward; state: floats a head)\n\n");
  print_table(families, {"family", "masks", "recurrent", "flops", "state"});
  fmt::print("\nFeature maps of the linear family\n\n");
  print_table(maps, {"feature_map", "formula", "features", "non_negative"});
  fmt::print("\nSimilarities of the kernel family\n\n");
  print_table(similarities, {"similarity", "formula", "parameters"});
}

}  // namespace

void add_families(CLI::App& program) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      program.add_subcommand("families", "List the attention families, feature maps and similarities");
  command->footer("Example: linnet families");
  command->add_flag("--json", *json, "print the tables as JSON");
  command->callback([=] { run(*json); });
}

}  // namespace linnet
