#include <fmt/core.h>

#include "commands.h"
#include "linnet/attention.h"
#include "report.h"

namespace linnet {
namespace {

void run(bool json) {
  Json families = Json::array(), maps = Json::array();
  for (const FamilyInfo& row : family_table())
    families.push_back({{"family", row.name},
                        {"masks", row.masks},
                        {"recurrent", row.recurrent},
                        {"flops", row.cost},
                        {"state", row.state}});
  for (const FeatureMapInfo& row : feature_map_table())
    maps.push_back({{"feature_map", row.name},
                    {"formula", row.formula},
                    {"features", row.features},
                    {"non_negative", row.non_negative}});
  if (json) {
    fmt::print("{}\n", Json{{"families", families}, {"feature_maps", maps}}.dump(2));
    return;
  }
  fmt::print("Attention families (flops: a query and head, forward; state: floats a head)\n\n");
  print_table(families, {"family", "masks", "recurrent", "flops", "state"});
  fmt::print("\nFeature maps of the linear family\n\n");
  print_table(maps, {"feature_map", "formula", "features", "non_negative"});
}

}  // namespace

void add_families(CLI::App& program) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = program.add_subcommand("families", "List the attention families and feature maps");
  command->footer("Example: linnet families");
  command->add_flag("--json", *json, "print the tables as JSON");
  command->callback([=] { run(*json); });
}

}  // namespace linnet
