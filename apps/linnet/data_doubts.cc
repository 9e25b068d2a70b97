#include "data_doubts.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "data/fasta.h"
#include "data/series.h"
#include "linnet/tokenizer.h"

namespace linnet {
namespace {

std::string time_as_column(const Dataset& data) {
  const Series* series = first_series(data);
  const std::string time = series != nullptr ? likely_time(*series) : std::string();
  if (time.empty()) return {};
  return fmt::format("the column \"{0}\" is learned as the others are; with data.time={0} it is the time",
                     time);
}

/// Whether the tokens of a line do not give back its end.
std::string lost_line_ends(const Dataset& data) {
  if (data.tokenizer().empty()) return {};
  const Tokenizer tokenizer(data.tokenizer(), data.vocabulary());
  if (tokenizer.decode(tokenizer.encode("a\nb")).find('\n') != std::string::npos) return {};
  return "the tokenizer of data.tokenizer loses line ends, which the model then neither reads nor writes; "
         "that of linnet data tokenizer keeps them";
}

/// DNA and RNA, whose letters are residues too: what is learned of them is nothing about proteins.
std::string nucleotides(const DataOptions& options, const Dataset& data) {
  if (options.kind != "fasta") return {};
  constexpr std::int64_t most_examples = 64;
  constexpr double most_share = 0.95;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.length())), targets(tokens);
  double letters = 0, found = 0;
  for (std::int64_t i = 0; i < std::min(data.size(), most_examples); ++i) {
    data.read(i, tokens, targets);
    for (const std::int32_t token : tokens) {
      if (token < 0) continue;
      ++letters;
      found += std::string_view("ACGTUN").find(residues[static_cast<std::size_t>(token)]) !=
               std::string_view::npos;
    }
  }
  if (found <= most_share * letters) return {};
  return "the sequences look like DNA or RNA, and data.kind = \"fasta\" reads residues of proteins";
}

/// Lines in which labels take turns: every tenth one is held out.
std::string label_not_held_out(const DataOptions& options, const Dataset& training,
                               const Dataset* validation) {
  if (options.kind != "lines" || training.class_names().empty() || validation == nullptr ||
      validation->classes() != training.classes())
    return {};
  constexpr std::int64_t several = 20;
  const std::vector<std::string> names = training.class_names();
  const std::vector<std::int64_t> learned = count_labels(training), held_out = count_labels(*validation);
  for (std::size_t label = 0; label < names.size(); ++label) {
    if (learned[label] < several || held_out[label] > 0) continue;
    return fmt::format(
        "no validation example has the label \"{}\", which {} of the training have: in other orders of the "
        "lines, or with data.validation, the evaluations say more",
        names[label], learned[label]);
  }
  return {};
}

}  // namespace

std::vector<std::int64_t> count_labels(const Dataset& data) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(data.classes()));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.length()) * data.fields().size()),
      targets(tokens);
  for (std::int64_t i = 0; i < data.size(); ++i)
    for (const PackedSequence& sequence : data.read_sequences(i, tokens, targets))
      if (sequence.label >= 0) ++counts[static_cast<std::size_t>(sequence.label)];
  return counts;
}

std::vector<std::string> doubts_of(const DataOptions& options, const Dataset& training,
                                   const Dataset* validation) {
  std::vector<std::string> sentences = {time_as_column(training), lost_line_ends(training),
                                        nucleotides(options, training),
                                        label_not_held_out(options, training, validation)};
  std::erase(sentences, std::string());
  return sentences;
}

}  // namespace linnet
