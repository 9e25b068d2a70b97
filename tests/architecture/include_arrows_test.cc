// Reads every #include of the public headers, of src/ and of apps/, and holds it against the modules of
// docs/architecture.md: base ← kernels ← attention ← layers ← model ← {training, generation} ← series ← apps,
// base ← io ← {model, data, training, generation}, base ← data ← {training, c_api}, generation ← c_api, base
// ← comm ← {training, apps}, attention ← study ← apps. python takes public headers alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace linnet {
namespace {

namespace fs = std::filesystem;

/// The modules that a module stands on directly; what those stand on is allowed too.
const std::map<std::string, std::set<std::string>> arrows = {
    {"base", {}},
    {"kernels", {"base"}},
    {"attention", {"kernels"}},
    {"study", {"attention"}},
    {"layers", {"attention"}},
    {"io", {"base"}},
    {"model", {"layers", "io"}},
    {"comm", {"base"}},
    {"data", {"base", "io"}},
    {"training", {"model", "comm", "data", "io"}},
    {"generation", {"model", "io"}},
    {"c_api", {"generation", "data"}},
    {"series", {"training", "generation"}},
    {"apps", {"series", "study"}},
    {"python", {"series"}},
};

const std::map<std::string, std::string> module_of_public_header = {
    {"instruction_set.h", "kernels"},
    {"communicator.h", "comm"},
    {"context.h", "base"},
    {"layer_types.h", "base"},
    {"tensor.h", "base"},
    {"error.h", "base"},
    {"export.h", "base"},
    {"version.h", "base"},
    {"mask.h", "attention"},
    {"feature_map.h", "attention"},
    {"similarity.h", "attention"},
    {"attention.h", "attention"},
    {"attention_config.h", "attention"},
    {"model.h", "model"},
    {"reference.h", "attention"},
    {"run_config.h", "training"},
    {"dataset.h", "data"},
    {"tokenizer.h", "data"},
    {"training.h", "training"},
    {"generation.h", "generation"},
    {"series.h", "series"},
    {"linnet.h", "apps"},
    {"c_api.h", "c_api"},
};

bool may_include(const std::string& from, const std::string& to) {
  if (from == to) return true;
  return std::ranges::any_of(arrows.at(from),
                             [&](const std::string& below) { return may_include(below, to); });
}

struct Include {
  int line = 0;
  std::string target;
};

std::vector<Include> includes_of(std::istream& text) {
  static const std::regex pattern(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  std::vector<Include> result;
  std::string line;
  std::smatch match;
  for (int number = 1; std::getline(text, line); ++number)
    if (std::regex_search(line, match, pattern)) result.push_back({number, match[1]});
  return result;
}

/// The module that an included name belongs to; nothing for headers of the system and of libraries.
std::optional<std::string> module_of(const std::string& target) {
  const std::string folder = target.substr(0, target.find('/'));
  if (folder == target) return std::nullopt;
  if (folder == "linnet") {
    const auto found = module_of_public_header.find(target.substr(folder.size() + 1));
    return found == module_of_public_header.end() ? "an unknown public header" : found->second;
  }
  return arrows.contains(folder) ? std::optional(folder) : std::nullopt;
}

bool starts_with_any(const std::string& text, std::initializer_list<const char*> beginnings) {
  return std::ranges::any_of(beginnings, [&](const char* beginning) { return text.starts_with(beginning); });
}

/// What is wrong with one include of `file` (from the repository's root) in `module`; empty when nothing is.
std::string complaint(const std::string& module, const fs::path& file, const std::string& target) {
  const std::optional<std::string> to = module_of(target);
  if (to && !arrows.contains(*to)) return *to;
  if (to && !may_include(module, *to)) return module + " may not include " + *to;
  if (to && module == "python" && !target.starts_with("linnet/"))
    return "the Python package includes public headers alone";
  if (module != "attention" &&
      starts_with_any(target, {"attention/kernel/", "attention/linear/", "attention/linformer/",
                               "attention/lsh/", "attention/softmax/", "attention/sparse/"}))
    return "what is inside a family belongs to attention";
  if (target.starts_with("hwy/") && module != "kernels" && module != "attention")
    return "Highway belongs to kernels and attention";
  if (target == "mpi.h" && (file.parent_path() != fs::path("src/comm/mpi") || file.extension() != ".cc"))
    return "MPI belongs to the sources of src/comm/mpi";
  // The library that is installed depends on no MPI.
  if (target.starts_with("comm/mpi/") && module != "apps" && file.parent_path() != fs::path("src/comm/mpi"))
    return "what depends on MPI belongs to src/comm/mpi and the program";
  if (target.ends_with("intrin.h") && module != "kernels" && module != "attention" &&
      file != fs::path("src/base/float_mode.h"))
    return "intrinsics belong to kernels, attention and src/base/float_mode.h";
  return {};
}

struct Source {
  std::string module;
  fs::path file;
};

/// Every source file below include/linnet, src, apps and python.
std::vector<Source> sources() {
  const fs::path root = LINNET_SOURCE_FOLDER;
  std::vector<Source> result;
  for (const char* top : {"include/linnet", "src", "apps", "python"}) {
    if (!fs::exists(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string extension = entry.path().extension().string();
      if (!entry.is_regular_file() || (extension != ".h" && extension != ".cc" && extension != ".cpp"))
        continue;
      const fs::path file = fs::relative(entry.path(), root);
      std::string module = "apps";
      if (top == std::string("python")) module = "python";
      if (top == std::string("src")) module = (*std::next(file.begin())).string();
      if (top == std::string("include/linnet")) {
        const auto found = module_of_public_header.find(file.filename().string());
        module = found == module_of_public_header.end() ? "" : found->second;
      }
      result.push_back({module, file});
    }
  }
  return result;
}

TEST(IncludeArrows, PointDownwardsAlone) {
  const std::vector<Source> all = sources();
  EXPECT_GT(all.size(), 50u) << "too few files found below " << LINNET_SOURCE_FOLDER;
  int seen = 0;
  for (const auto& [module, file] : all) {
    ASSERT_TRUE(arrows.contains(module)) << file << " lies in no module that this test knows";
    std::ifstream text(fs::path(LINNET_SOURCE_FOLDER) / file);
    ASSERT_TRUE(text) << file;
    for (const auto& [line, target] : includes_of(text)) {
      ++seen;
      const std::string wrong = complaint(module, file, target);
      EXPECT_TRUE(wrong.empty()) << file.string() << ":" << line << " includes " << target << ": " << wrong;
    }
  }
  EXPECT_GT(seen, 200);
}

TEST(IncludeArrows, TellAllowedFromForbidden) {
  const auto allowed = [](const char* module, const char* file, const char* target) {
    return complaint(module, file, target).empty();
  };
  EXPECT_TRUE(allowed("layers", "src/layers/a.cc", "kernels/dense.h"));
  EXPECT_TRUE(allowed("python", "python/src/a.cc", "linnet/generation.h"));
  EXPECT_FALSE(allowed("python", "python/src/a.cc", "base/fail.h"));
  EXPECT_TRUE(allowed("generation", "src/generation/a.cc", "base/parallel.h"));
  EXPECT_TRUE(allowed("c_api", "src/c_api/a.cc", "linnet/tokenizer.h"));
  EXPECT_TRUE(allowed("training", "src/training/a.cc", "linnet/dataset.h"));
  EXPECT_TRUE(allowed("data", "src/data/a.cc", "io/file.h"));
  EXPECT_TRUE(allowed("training", "src/training/a.cc", "linnet/communicator.h"));
  EXPECT_TRUE(allowed("comm", "src/comm/mpi/a.cc", "mpi.h"));
  EXPECT_TRUE(allowed("apps", "apps/linnet/train.cc", "comm/mpi/start_ranks.h"));
  EXPECT_TRUE(allowed("apps", "apps/linnet/main.cc", "generation/sampler.h"));
  EXPECT_TRUE(allowed("attention", "src/attention/linear/a.cc", "hwy/highway.h"));
  EXPECT_TRUE(allowed("layers", "src/layers/a.cc", "attention/family.h"));
  EXPECT_FALSE(allowed("model", "src/model/a.cc", "attention/lsh/hash.h"));
  EXPECT_FALSE(allowed("apps", "apps/linnet/a.cc", "attention/sparse/strided_attention.h"));
  EXPECT_TRUE(allowed("base", "src/base/tensor.h", "linnet/error.h"));
  EXPECT_TRUE(allowed("base", "src/base/tensor.h", "vector"));

  EXPECT_FALSE(allowed("kernels", "src/kernels/a.cc", "attention/arguments.h"));
  EXPECT_FALSE(allowed("training", "src/training/a.cc", "generation/sampler.h"));
  EXPECT_FALSE(allowed("training", "src/training/a.cc", "linnet/generation.h"));
  EXPECT_FALSE(allowed("generation", "src/generation/a.cc", "linnet/c_api.h"));
  EXPECT_FALSE(allowed("generation", "src/generation/a.cc", "linnet/dataset.h"));
  EXPECT_FALSE(allowed("generation", "src/generation/a.cc", "data/files.h"));
  EXPECT_FALSE(allowed("generation", "src/generation/a.cc", "linnet/training.h"));
  EXPECT_FALSE(allowed("layers", "src/layers/a.cc", "io/json.h"));
  EXPECT_FALSE(allowed("io", "src/io/a.cc", "layers/dense.h"));
  EXPECT_FALSE(allowed("comm", "src/comm/a.cc", "mpi.h"));
  EXPECT_FALSE(allowed("comm", "src/comm/mpi/a.h", "mpi.h"));
  EXPECT_FALSE(allowed("comm", "src/comm/communicator.cc", "comm/mpi/mpi_transport.h"));
  EXPECT_FALSE(allowed("training", "src/training/a.cc", "comm/mpi/start_ranks.h"));
  EXPECT_FALSE(allowed("comm", "src/comm/a.cc", "io/file.h"));
  EXPECT_FALSE(allowed("model", "src/model/a.cc", "linnet/communicator.h"));
  EXPECT_FALSE(allowed("data", "src/data/a.cc", "model/network.h"));
  EXPECT_FALSE(allowed("base", "src/base/a.cc", "linnet/mask.h"));
  EXPECT_FALSE(allowed("base", "include/linnet/tensor.h", "linnet/unheard_of.h"));
  EXPECT_FALSE(allowed("layers", "src/layers/a.cc", "hwy/highway.h"));
  EXPECT_FALSE(allowed("apps", "apps/linnet/bench/bench.cc", "immintrin.h"));
}

TEST(IncludeArrows, AreFoundInEverySpelling) {
  std::istringstream text(
      "#include \"a/b.h\"\n  # include <c/d.h>\n// an #include \"e/f.h\" in words\n#include\"g.h\" // g\n");
  const auto found = includes_of(text);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].target, "a/b.h");
  EXPECT_EQ(found[1].target, "c/d.h");
  EXPECT_EQ(found[2].target, "g.h");
  EXPECT_EQ(found[2].line, 4);
}

}  // namespace
}  // namespace linnet
