#include <array>

#include "approximate/approximate.h"
#include "plot/plot.h"

namespace linnet {
namespace {

const std::array<std::string, 4> colours = {"favor", "favor-sincos", "favor-hyperbolic", "favor-trig"};

int colour_of(const std::string& map) {
  for (std::size_t i = 0; i < colours.size(); ++i)
    if (colours[i] == map) return static_cast<int>(i);
  return -1;
}

void add_point(Chart& chart, const std::string& name, const Json& x, const Json& y, int colour, bool dashed) {
  // A logarithmic axis has no place for nothing, nor for what is beyond all numbers.
  if (y.is_null() || y.get<double>() <= 0) return;
  Chart::Line& line = chart.line(name);
  line.points.emplace_back(x.get<double>(), y.get<double>());
  line.colour = colour;
  line.dashed = dashed;
}

}  // namespace

void plot_approximation(const Json& result, const std::string& path) {
  Chart weights, output, rank;
  weights.title = "Weights exp(q·k/√E)";
  weights.subtitle = "independent directions, dashed: closed form";
  output.title = "Output of attention";
  const std::string plain = plain_directions(result["rows"]);
  output.subtitle = plain + " directions, dashed: others";
  rank.title = "Attention matrix of rank k";
  rank.subtitle = "least error of any projection";
  weights.x_label = output.x_label = "features F";
  rank.x_label = "rank k";
  weights.y_label = output.y_label = rank.y_label = "relative error";
  output.notes.push_back({result["inputs"].get<std::string>()});
  for (const Json& row : result["rows"]) {
    const std::string map = row["map"];
    const int colour = colour_of(map);
    const std::string directions = row["directions"];
    if (directions == "independent") {
      add_point(weights, map, row["features"], row["weights"]["error"], colour, false);
      add_point(weights, map + ", predicted", row["features"], row["predicted"], colour, true);
    }
    add_point(output, directions == plain ? map : map + ", " + directions, row["features"],
              row["output"]["error"], colour, directions != plain);
  }
  std::vector<Chart> charts;
  for (const Chart& chart : {weights, output})
    if (!chart.lines.empty()) charts.push_back(chart);
  if (result.contains("ranks")) {
    for (const Json& row : result["ranks"]) {
      add_point(rank, "best of rank k", row["rank"], row["error"], 0, false);
      add_point(rank, "singular value k over the first", row["rank"], row["singular_value"], 1, true);
    }
    if (!rank.lines.empty()) charts.push_back(rank);
  }
  write_chart(path, charts);
}

}  // namespace linnet
