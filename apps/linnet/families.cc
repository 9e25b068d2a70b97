#include <fmt/format.h>

#include "commands.h"
#include "linnet/attention.h"
#include "report.h"

namespace linnet {
namespace {

/// A table of the code: its rows, and the columns that are shown of them with their heads.
struct Table {
  std::string name, title;
  Json rows = Json::array();
  std::vector<std::string> keys, heads;
};

std::vector<Table> tables() {
  Table families = {"families",
                    "Attention families (FLOPs per query and head; state in floats per head)",
                    Json::array(),
                    {"family", "masks", "recurrent", "flops", "training_flops", "state"},
                    {"family", "masks", "recurrent form", "FLOPs forward", "FLOPs in training", "state"}};
  for (const FamilyInfo& row : family_table())
    families.rows.push_back({{"family", row.name},
                             {"masks", row.masks},
                             {"recurrent", row.recurrent},
                             {"flops", row.cost},
                             {"training_flops", row.training},
                             {"state", row.state}});
  Table maps = {"feature_maps",
                "Feature maps of the linear family",
                Json::array(),
                {"feature_map", "formula", "features", "non_negative"},
                {"feature map", "formula", "features F", "non-negative"}};
  for (const auto table : {feature_map_table(), random_feature_map_table()})
    for (const FeatureMapInfo& row : table)
      maps.rows.push_back({{"feature_map", row.name},
                           {"formula", row.formula},
                           {"features", row.features},
                           {"non_negative", row.non_negative}});
  Table similarities = {"similarities",
                        "Similarities of the kernel family",
                        Json::array(),
                        {"similarity", "formula", "parameters"},
                        {"similarity", "formula", "parameters"}};
  for (const SimilarityInfo& row : similarity_table())
    similarities.rows.push_back(
        {{"similarity", row.name}, {"formula", row.formula}, {"parameters", row.parameters}});
  return {families, maps, similarities};
}

std::string cell(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  std::string text;
  for (const char letter : value.get<std::string>()) text += letter == '|' ? "\\|" : std::string(1, letter);
  return text;
}

/// Between comments, by which a page of documentation is kept equal to it.
void print_markdown(const Table& table) {
  fmt::print("<!-- {}: printed by linnet families --markdown -->\n", table.name);
  std::string rule;
  for (std::size_t i = 0; i < table.heads.size(); ++i) rule += "|---";
  fmt::print("| {} |\n{}|\n", fmt::join(table.heads, " | "), rule);
  for (const Json& row : table.rows) {
    std::vector<std::string> cells;
    for (const std::string& key : table.keys)
      cells.push_back((cells.empty() ? "`" : "") + cell(row[key]) + (cells.empty() ? "`" : ""));
    fmt::print("| {} |\n", fmt::join(cells, " | "));
  }
  fmt::print("<!-- end of {} -->\n", table.name);
}

void run(bool json, bool markdown) {
  Json all;
  for (const Table& table : tables()) {
    all[table.name] = table.rows;
    if (json) continue;
    if (markdown) {
      print_markdown(table);
      continue;
    }
    fmt::print("{}{}\n\n", table.name == "families" ? "" : "\n", table.title);
    print_table(table.rows, table.keys);
  }
  if (json) print_json(all);
}

}  // namespace

void add_families(Command& program) {
  auto json = std::make_shared<bool>(false), markdown = std::make_shared<bool>(false);
  Command command =
      program.add_subcommand("families", "List the attention families, feature maps and similarities");
  command.footer("Example: linnet families");
  Option as_json = command.add_flag("--json", *json, "print the tables as JSON");
  command.add_flag("--markdown", *markdown, "print the tables of docs/families.md").excludes(as_json);
  command.callback([=] { run(*json, *markdown); });
}

}  // namespace linnet
