#include "training/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/clock.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/random.h"
#include "kernels/elementwise.h"
#include "model/access.h"
#include "model/files.h"
#include "training/checkpoint.h"
#include "training/config.h"
#include "training/examples.h"
#include "training/initial.h"
#include "training/run_columns.h"

namespace linnet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* operation = "trainer";

/// The options, where every value is in its range; throws UsageError, naming the key, otherwise.
TrainingOptions checked(TrainingOptions options) {
  Options table;
  add_options(table, options);
  table.check("training options");
  return options;
}

void check_ranks(const Communicator& ranks, const TrainingOptions& options) {
  const std::int64_t size = ranks.size(), together = options.sequence_ranks;
  if (size % together != 0)
    fail<UsageError>("ranks", "expected a number of ranks that training.sequence_ranks = {} divides, got {}",
                     together, size);
  if (size / together > options.accumulate)
    fail<UsageError>("ranks",
                     "expected at most training.accumulate = {} {}, since {} whole passes, got {}: lower "
                     "training.batch and raise training.accumulate",
                     options.accumulate,
                     together == 1 ? "ranks" : fmt::format("groups of {} ranks", together),
                     together == 1 ? "a rank computes" : "they compute", size / together);
}

void require_same_parameters(std::vector<std::string> differences) {
  constexpr std::size_t most = 8;
  if (differences.empty()) return;
  const std::size_t more = differences.size() - std::min(differences.size(), most);
  differences.resize(differences.size() - more);
  fail<UsageError>(operation,
                   "expected an initial model with the parameters of this one, got one in which {}{}",
                   fmt::join(differences, ", "), more > 0 ? fmt::format(" and {} more differ", more) : "");
}

/// The caller's own map, otherwise that of the initial model.
std::shared_ptr<const FeatureMap> chosen_map(std::shared_ptr<const FeatureMap> own, const Model* initial) {
  if (own == nullptr && initial != nullptr) return initial->feature_map();
  return own;
}

}  // namespace

Trainer::Impl::Impl(Context& context, const ModelConfig& config, const TrainingOptions& options,
                    const Model* initial, std::shared_ptr<const FeatureMap> feature_map, Communicator* ranks)
    : context_(context),
      alone_(ranks == nullptr ? Communicator::alone() : nullptr),
      ranks_(ranks == nullptr ? *alone_ : *ranks),
      config_(config),
      options_(checked(options)),
      head_weights_(head_weights(options, config)),
      feature_map_(chosen_map(std::move(feature_map), initial)),
      network_(config, feature_map_, options.precision),
      values_(Tensor::of<float>({network_.table().size()})),
      gradients_(Tensor::of<float>({network_.table().size()})),
      optimiser_(network_.table(), options),
      adapted_(initial != nullptr) {
  if (config.weights != WeightType::f32)
    fail<UsageError>(operation,
                     "expected model.weights = \"f32\", got \"{}\": train in f32 and convert the model",
                     name_of(config.weights));
  if (bounds_of(options).cuts(config.length)) check_segments(config);
  check_stretches(config, options.sequence_ranks);
  if (options.sequence_ranks > 1 && options.segment > 0)
    fail<UsageError>("training.sequence_ranks", "expected training.segment = 0, got {}", options.segment);
  check_ranks(ranks_, options);
  const std::uint64_t seed = static_cast<std::uint64_t>(options.seed);
  if (initial != nullptr)
    require_same_parameters(start_from(values_.span<float>(), network_, config, *initial, seed));
  else
    network_.table().initialise(values_.span<float>(), seed);
  pack();
  if (network_.columns() && !network_.columns()->is_unscaled()) scale_ = Scale::of_initial;
}

StepReport Trainer::Impl::step(const Batch& batch) {
  const auto start = Clock::now();
  if (steps() >= most_steps)
    fail<UsageError>(operation, "expected at most {} updates, got one more", most_steps);
  check_batch(operation, config_, batch);
  if (options_.sequence_ranks > 1 && (batch.length != config_.length || !batch.positions.empty()))
    fail<UsageError>("training.sequence_ranks",
                     "expected one sequence of model.length = {} steps per example (data.packing = false), "
                     "got {}",
                     config_.length,
                     batch.positions.empty() ? fmt::format("{} steps", batch.length) : "several sequences");
  sizes_ = sizes_of_all(batch);
  const std::int64_t counted = sizes_.counted;
  if (counted == 0)
    fail<UsageError>(operation, "expected targets that are not −1, got none at step {}", steps() + 1);

  // Before an update and not after one: a model is saved with the draws that it was trained with last.
  const std::int64_t redraw = config_.attention.linear.redraw;
  if (redraw > 0 && steps() > 0 && steps() % redraw == 0) {
    network_.redraw(values_.span<float>(), static_cast<std::uint64_t>(steps() / redraw));
    pack();
  }
  const double nats = accumulate_gradients(batch, counted);
  const std::span<float> gradients = gradients_.span<float>();
  const double norm = std::sqrt(kernels::sum_of_squares(context_, gradients));
  if (!std::isfinite(norm)) fail_not_finite("gradient", parameter_not_finite());
  const double factor = options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1;

  const double rate = learning_rate();
  ++progress_.step;
  progress_.examples += sizes_.examples;
  optimiser_.update(context_, values_.span<float>(), gradients, static_cast<float>(factor), rate, steps());
  pack();

  const double bits = nats / std::numbers::ln2 / static_cast<double>(counted);
  progress_.loss.add(bits);
  return {.step = steps(),
          .bits = bits,
          .smoothed_bits = progress_.loss.mean(),
          .gradient_norm = norm,
          .learning_rate = rate,
          .tokens_per_second = static_cast<double>(sizes_.steps) / seconds_since(start)};
}

StepReport Trainer::Impl::step_of(const Dataset& dataset, std::int64_t count, const Examples::Index& index,
                                  std::int64_t first) {
  const auto start = Clock::now();
  const auto seed = static_cast<std::uint64_t>(options_.seed);
  StepReport report = step(
      examples_.read(context_, dataset, config_, count, index,
                     {Random(seed, Draw::masking, training_masks), [&](std::int64_t i) { return first + i; },
                      options_.transpose, Random(seed, Draw::masking, training_shifts)}));
  // With the time that reading the examples took.
  report.tokens_per_second = static_cast<double>(sizes_.steps) / seconds_since(start);
  return report;
}

StepReport Trainer::Impl::step_in_order(const Dataset& dataset) {
  const auto seed = static_cast<std::uint64_t>(options_.seed);
  const PassRange passes = own_passes();
  const std::int64_t first = options_.batch * (steps() * options_.accumulate + passes.first);
  return step_of(
      dataset, options_.batch * passes.count(),
      [&](std::int64_t i) { return shuffled_index(seed, first + i, dataset.size()); }, first);
}

StepReport Trainer::Impl::step(const Dataset& dataset) {
  check_training_data(config_, options_, dataset);
  take_missing_scale(dataset);
  return step_in_order(dataset);
}

StepReport Trainer::Impl::step(const Dataset& dataset, std::span<const std::int64_t> indices) {
  check_training_data(config_, options_, dataset);
  for (const std::int64_t index : indices)
    if (index < 0 || index >= dataset.size())
      fail<UsageError>(operation, "expected indices in 0 … {}, got {}", dataset.size() - 1, index);
  take_missing_scale(dataset);
  return step_of(
      dataset, std::ssize(indices), [&](std::int64_t i) { return indices[static_cast<std::size_t>(i)]; },
      progress_.examples);
}

Trainer::Impl::Groups& Trainer::Impl::groups() {
  if (groups_) return *groups_;
  const auto together = static_cast<int>(options_.sequence_ranks);
  std::unique_ptr<Communicator> stretches = ranks_.split(ranks_.rank() / together),
                                passes = ranks_.split(ranks_.rank() % together);
  Communicator& exchanging = *stretches;
  return groups_.emplace(Groups{std::move(stretches), std::move(passes), RankStretches(exchanging)});
}

PassRange Trainer::Impl::own_passes() {
  const Communicator& passes = *groups().passes;
  return passes_of(options_.accumulate, passes.rank(), passes.size());
}

Trainer::Impl::Sizes Trainer::Impl::sizes_of_all(const Batch& batch) {
  std::int64_t sizes[] = {batch.examples, steps_in(batch), counted_targets(batch)};
  groups().passes->sum(std::span(sizes));
  return {sizes[0], sizes[1], sizes[2]};
}

GradientSum& Trainer::Impl::sum_of(std::int64_t passes) {
  if (!sum_ || sum_->passes() != passes) {
    sum_.reset();  // its memory goes before the new one's is taken
    sum_.emplace(*groups().passes, gradients_.span<float>(), passes);
  }
  return *sum_;
}

double Trainer::Impl::accumulate_gradients(const Batch& batch, std::int64_t counted) {
  const bool alone = groups().passes->size() == 1;
  GradientSum& sum = sum_of(alone ? std::min(options_.accumulate, batch.examples) : options_.accumulate);
  nats_.assign(static_cast<std::size_t>(sum.passes()), 0.0);
  sum.run(context_, [&](std::int64_t pass, std::span<float> gradients, const GradientsComplete& complete) {
    nats_[static_cast<std::size_t>(pass)] =
        compute_pass(batch, pass - sum.own().first, counted, gradients, complete);
  });
  if (options_.sequence_ranks > 1) groups().stretches->sum(gradients_.span<float>());
  ranks_.sum(std::span(nats_));  // the losses of one rank, or of the stretches of a pass, and zeros
  return std::accumulate(nats_.begin(), nats_.end(), 0.0);
}

/// `pass` counts those of this rank.
double Trainer::Impl::compute_pass(const Batch& batch, std::int64_t pass, std::int64_t counted,
                                   std::span<float> gradients, const GradientsComplete& complete) {
  const PassRange own = sum_->own();
  // The first of the passes are the largest.
  const std::int64_t each = batch.examples / own.count(), larger = batch.examples % own.count();
  SegmentedTransformer& transformer = transformer_for(each + (larger > 0 ? 1 : 0));
  const std::int64_t first = pass * each + std::min(pass, larger);
  const Batch part = part_of(batch, first, first + each + (pass < larger ? 1 : 0));
  Dropout dropout =
      dropout_of_pass({static_cast<float>(config_.dropout), static_cast<std::uint64_t>(options_.seed)},
                      steps() * options_.accumulate + own.first + pass);
  Pass inputs = pass_of(part);
  inputs.head_weights = head_weights_;
  PassPart place;
  if (options_.sequence_ranks > 1) {
    const int stretch = groups().stretches->rank();
    place = {.position = stretch * own_length(), .exchange = &groups().exchange};
    inputs = stretch_.of(inputs, place.position, own_length());
    dropout = dropout_of_part(dropout, stretch);
  }
  const double nats = transformer.accumulate(context_, inputs, 1 / static_cast<float>(counted), dropout,
                                             gradients, place, complete);
  if (!std::isfinite(nats)) fail_not_finite("loss", transformer.first_not_finite(context_));
  return nats;
}

SegmentedTransformer& Trainer::Impl::transformer_for(std::int64_t examples) {
  if (!transformer_ || examples > reserved_) {
    transformer_.reset();  // its memory goes before the new one's is taken, which may fail
    reserved_ = 0;
    if (feature_map_ == nullptr)  // the configuration does not say how many features the user's own has
      require_memory(fmt::format("a pass of {} examples", examples),
                     sizeof(float) * SegmentedTransformer::floats(config_, examples, own_length(),
                                                                  bounds_of(options_), options_.precision));
    transformer_.emplace(network_, examples, own_length(), bounds_of(options_));
    reserved_ = examples;
  }
  return *transformer_;
}

void Trainer::Impl::fail_not_finite(const char* what, const std::string& where) const {
  fail(operation,
       "expected a finite {}, got one that is not at step {}, first in {}; the last good checkpoint is {}",
       what, steps() + 1, where.empty() ? "the sum" : where,
       checkpoint_.empty() ? "none: none was saved" : checkpoint_.string());
}

std::string Trainer::Impl::parameter_not_finite() const {
  for (const ParameterTable::Row& row : network_.table().rows()) {
    const auto part = gradients_.span<float>().subspan(static_cast<std::size_t>(row.place.offset()),
                                                       static_cast<std::size_t>(row.count));
    if (!std::isfinite(kernels::sum_of_squares(context_, part))) return row.name;
  }
  return {};
}

double Trainer::Impl::learning_rate() const {
  return rate_.value_or(linnet::learning_rate(options_, steps() + 1));
}

void Trainer::Impl::set_learning_rate(std::optional<double> rate) {
  if (rate && !(*rate >= 0 && *rate <= most_learning_rate))
    fail<UsageError>(operation, "expected a learning rate in 0 … {}, got {}", most_learning_rate, *rate);
  rate_ = rate;
}

void Trainer::Impl::set_columns(const ColumnStatistics& columns, const ColumnStatistics& targets) {
  if (!network_.columns())
    fail<UsageError>(operation, "expected a model with columns of real numbers, got one of tokens alone");
  if (steps() > 0)
    fail<UsageError>(operation, "expected the scale of the columns before the first update, got it after {}",
                     steps());
  write_columns(columns, targets);
  scale_ = Scale::given;
}

void Trainer::Impl::write_columns(const ColumnStatistics& columns, const ColumnStatistics& targets) {
  network_.columns()->set(values_.span<float>(), columns.mean, columns.deviation, targets.mean,
                          targets.deviation);
  pack();
}

void Trainer::Impl::set_assets(ModelAssets assets) {
  check_assets(operation, assets, config_);
  assets_ = std::move(assets);
}

void Trainer::Impl::set_scale_of(const Dataset& dataset) {
  if (steps() > 0 || config_.columns == 0) return;
  // The scale of an initial model is not that of data which are normalised already.
  const bool normalised = !dataset.applied_statistics().mean.empty();
  if (scale_ == Scale::given || (scale_ == Scale::of_initial && !normalised)) return;
  write_columns(dataset.column_statistics(),
                config_.target_count() > 0 ? dataset.target_statistics() : ColumnStatistics());
  scale_ = Scale::of_data;
}

void Trainer::Impl::take_missing_scale(const Dataset& dataset) {
  if (scale_ != Scale::none || steps() > 0 || config_.columns == 0) return;
  if (!dataset.column_statistics().mean.empty()) set_scale_of(dataset);
}

void Trainer::Impl::set_assets_of(const Dataset& dataset) {
  set_assets({config_.classes > 0 ? label_names(dataset) : std::vector<std::string>(), dataset.tokenizer(),
              RunColumns::of(dataset).text()});
}

void Trainer::Impl::set_data(const Dataset& dataset) {
  check_training_data(config_, options_, dataset);
  set_scale_of(dataset);
  set_assets_of(dataset);
}

void Trainer::Impl::save(const std::filesystem::path& folder) {
  write_checkpoint(folder, progress_, config_, options_, network_.table(), values_.span<float>(), optimiser_,
                   assets_);
  saved(folder);
}

void Trainer::Impl::saved(const std::filesystem::path& folder) {
  checkpoint_ = folder;
  ranks_.on_failure_say(fmt::format("the last good checkpoint is {}", folder.string()));
}

void Trainer::Impl::restore(const std::filesystem::path& folder) {
  ModelAssets assets = read_assets(folder, config_);
  progress_ = read_checkpoint(folder, config_, options_, network_.table(), values_.span<float>(), optimiser_);
  if (!assets.class_names.empty()) assets_.class_names = std::move(assets.class_names);
  if (!assets.tokenizer.empty()) assets_.tokenizer = std::move(assets.tokenizer);
  if (!assets.columns.empty()) assets_.columns = std::move(assets.columns);
  scale_ = Scale::given;
  saved(folder);
  pack();
}

void Trainer::Impl::write_model(const std::filesystem::path& folder) const {
  linnet::write_model(folder, config_, network_.table(), values_.span<float>(), assets_);
}

std::shared_ptr<const Model> Trainer::Impl::model() const {
  return make_model(config_, values_.clone(), feature_map_, assets_);
}

Trainer::Trainer(Context& context, const ModelConfig& config, const TrainingOptions& options,
                 const std::shared_ptr<const Model>& initial, std::shared_ptr<const FeatureMap> feature_map)
    : impl_(std::make_unique<Impl>(context, config, options, initial.get(), std::move(feature_map))) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

StepReport Trainer::step(const Batch& batch) { return impl_->step(batch); }
StepReport Trainer::step(const Dataset& dataset) { return impl_->step(dataset); }
StepReport Trainer::step(const Dataset& dataset, std::span<const std::int64_t> indices) {
  return impl_->step(dataset, indices);
}
void Trainer::set_learning_rate(std::optional<double> rate) { impl_->set_learning_rate(rate); }
double Trainer::learning_rate() const { return impl_->learning_rate(); }
std::int64_t Trainer::steps() const { return impl_->steps(); }
void Trainer::save(const std::filesystem::path& folder) const {
  check_not_a_model(folder);
  impl_->save(folder);
}
void Trainer::restore(const std::filesystem::path& folder) { impl_->restore(folder); }
void Trainer::set_columns(const ColumnStatistics& columns, const ColumnStatistics& targets) {
  impl_->set_columns(columns, targets);
}
void Trainer::set_assets(ModelAssets assets) { impl_->set_assets(std::move(assets)); }
void Trainer::set_data(const Dataset& dataset) { impl_->set_data(dataset); }
std::shared_ptr<const Model> Trainer::model() const { return impl_->model(); }

}  // namespace linnet
