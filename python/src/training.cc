#include "linnet/training.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "context.h"
#include "dataset.h"
#include "errors.h"
#include "interrupts.h"
#include "linnet/run_config.h"
#include "model.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace linnet::python {
namespace {

/// A trainer with what it needs. Calls take turns; the context is its own.
struct TrainerObject {
  /// `data`, unless null, are those of the training.
  TrainerObject(const RunConfig& config, int threads, const std::shared_ptr<const Model>& initial,
                const Dataset* data)
      : context(threads), trainer(context, config.model, config.training, initial), model(config.model) {
    if (data != nullptr) trainer.set_data(*data);
  }

  Context context;
  Trainer trainer;
  ModelConfig model;
  CallMutex mutex;
};

/// A configuration with everything that the data decide filled in.
RunConfig config_of(const std::string& json) {
  RunConfig config;
  config.read_json(json, "the configuration");
  return config;
}

std::shared_ptr<const Model> model_of(const ModelObject* object) {
  return object == nullptr ? nullptr : object->model;
}

nb::dict dict_of(const StepReport& report) {
  nb::dict row;
  row["step"] = report.step;
  row["bits"] = report.bits;
  row["smoothed_bits"] = report.smoothed_bits;
  row["gradient_norm"] = report.gradient_norm;
  row["learning_rate"] = report.learning_rate;
  row["tokens_per_second"] = report.tokens_per_second;
  return row;
}

nb::dict dict_of(const Evaluation& evaluation) {
  nb::dict row;
  row["bits"] = evaluation.bits;
  // Of real numbers it is none.
  if (std::isnan(evaluation.squared_error)) row["perplexity"] = evaluation.perplexity;
  row["accuracy"] = evaluation.accuracy;
  row["tokens"] = evaluation.tokens;
  row["examples"] = evaluation.examples;
  row["non_positive"] = evaluation.non_positive;
  if (!evaluation.field_bits.empty()) row["field_bits"] = evaluation.field_bits;
  if (!evaluation.confusion.empty()) row["confusion"] = evaluation.confusion;
  const auto add = [&](const char* name, double value) {
    if (!std::isnan(value)) row[name] = value;
  };
  add("squared_error", evaluation.squared_error);
  add("absolute_error", evaluation.absolute_error);
  add("naive_squared_error", evaluation.naive_squared_error);
  add("naive_absolute_error", evaluation.naive_absolute_error);
  add("seasonal_squared_error", evaluation.seasonal_squared_error);
  add("seasonal_absolute_error", evaluation.seasonal_absolute_error);
  add("token_bits", evaluation.token_bits);
  add("value_nats", evaluation.value_nats);
  return row;
}

TrainingCallbacks callbacks_of(nb::dict functions, Interrupts& interrupts) {
  const auto function = [&](const char* name) -> nb::handle {
    return functions.contains(name) ? nb::handle(functions[name]) : nb::handle();
  };
  TrainingCallbacks callbacks;
  // What there is to report is kept before Python runs, which raises what a signal asked for.
  const nb::handle reports = functions["reports"], evaluations = functions["evaluations"];
  callbacks.on_step = [f = function("on_step"), reports](const StepReport& report) {
    const nb::gil_scoped_acquire acquired;
    nb::borrow<nb::list>(reports).append(dict_of(report));
    if (f) f(dict_of(report));  // its own, which it may change
  };
  callbacks.on_evaluation = [f = function("on_evaluation"), evaluations](std::int64_t step,
                                                                         const Evaluation& evaluation) {
    const nb::gil_scoped_acquire acquired;
    nb::borrow<nb::list>(evaluations).append(nb::make_tuple(step, dict_of(evaluation)));
    if (f) f(step, dict_of(evaluation));
  };
  if (const nb::handle f = function("on_sample"))
    callbacks.draw_samples = [f](std::int64_t step, const std::shared_ptr<const Model>& model) {
      const nb::gil_scoped_acquire acquired;
      f(step, ModelObject{model});
    };
  if (const nb::handle f = function("on_message"))
    callbacks.on_message = [f](const std::string& message) {
      const nb::gil_scoped_acquire acquired;
      f(message);
    };
  const nb::handle stop = function("should_stop");
  callbacks.should_stop = [stop, &interrupts] {
    if (interrupts.raised()) return true;
    if (!stop) return false;
    const nb::gil_scoped_acquire acquired;
    return nb::cast<bool>(nb::bool_(stop()));
  };
  return callbacks;
}

nb::dict train_model(SharedContext& context, const std::string& json, const DatasetObject& training,
                     const DatasetObject& validation, const std::string& folder, bool resume,
                     const ModelObject* initial, nb::dict functions) {
  RunConfig config = config_of(json);
  Interrupts interrupts;
  const TrainingCallbacks callbacks = callbacks_of(functions, interrupts);
  TrainingResult result;
  {
    const Computing turn(context.mutex);
    config.fit_to_data(*training.dataset);
    config.check_memory(true);
    result = train(context.context, config.model, config.training, *training.dataset, *validation.dataset,
                   folder, resume, callbacks, nullptr, model_of(initial));
  }
  interrupts.rethrow();
  nb::dict done;
  done["step"] = result.step;
  done["finished"] = result.finished;
  done["evaluation"] = result.evaluation ? nb::object(dict_of(*result.evaluation)) : nb::none();
  done["best_step"] = result.best_step < 0 ? nb::none() : nb::object(nb::int_(result.best_step));
  done["best_bits"] = result.best_step < 0 ? nb::none() : nb::object(nb::float_(result.best_bits));
  return done;
}

nb::dict evaluate_model(SharedContext& context, const ModelObject& model, const DatasetObject& data,
                        std::int64_t examples, std::int64_t batch, bool accuracy) {
  Evaluation result;
  interruptible([&](const auto& stop) {
    const std::lock_guard<CallMutex> turn(context.mutex);
    result = evaluate(context.context, *model.model, *data.dataset, examples, batch, accuracy, {}, nullptr,
                      [&] { stop(); });
  });
  return dict_of(result);
}

nb::dict step(TrainerObject& self, std::int64_t examples, std::int64_t length, nb::dict parts) {
  Batch batch{.examples = examples, .length = length};
  const auto take = [&]<class T>(const char* name, std::span<const T>& into) {
    if (parts.contains(name)) into = span_of<const T>(parts[name], "step", name);
  };
  take("inputs", batch.inputs);
  take("targets", batch.targets);
  take("conditions", batch.conditions);
  take("key_lengths", batch.key_lengths);
  take("values", batch.values);
  take("value_targets", batch.value_targets);
  take("labels", batch.labels);
  take("positions", batch.positions);
  take("source", batch.source);
  take("source_lengths", batch.source_lengths);
  StepReport report;
  {
    const Computing turn(self.mutex);
    report = self.trainer.step(batch);
  }
  return dict_of(report);
}

nb::dict step_examples(TrainerObject& self, const DatasetObject& data, nb::handle indices) {
  const bool in_order = indices.is_none();
  std::span<const std::int64_t> chosen;
  if (!in_order) chosen = span_of<const std::int64_t>(indices, "step", "indices");
  StepReport report;
  {
    const Computing turn(self.mutex);
    report = in_order ? self.trainer.step(*data.dataset) : self.trainer.step(*data.dataset, chosen);
  }
  return dict_of(report);
}

}  // namespace

void bind_training(nb::module_& module) {
  module.def("train", &train_model, "context"_a, "config"_a, "training"_a, "validation"_a, "folder"_a,
             "resume"_a, "initial"_a.none(), "callbacks"_a);
  module.def("evaluate", &evaluate_model, "context"_a, "model"_a, "data"_a, "examples"_a, "batch"_a,
             "accuracy"_a);
  nb::class_<TrainerObject>(module, "Trainer")
      .def(
          "__init__",
          [](TrainerObject* self, const std::string& json, int threads, const ModelObject* initial,
             const DatasetObject* data) {
            const nb::gil_scoped_release released;
            RunConfig config = data == nullptr ? RunConfig{ModelConfig()} : RunConfig();
            config.read_json(json, "the configuration");
            if (data != nullptr) config.fit_to_data(*data->dataset);
            config.model.check();
            config.check_memory(true);
            new (self) TrainerObject(config, threads, model_of(initial),
                                     data == nullptr ? nullptr : data->dataset.get());
          },
          "config"_a, "threads"_a, "initial"_a.none(), "data"_a.none())
      .def("step", &step, "examples"_a, "length"_a, "parts"_a)
      .def("step_examples", &step_examples, "data"_a, "indices"_a.none())
      .def_prop_ro("steps",
                   [](TrainerObject& self) {
                     const Computing turn(self.mutex);
                     return self.trainer.steps();
                   })
      .def_prop_ro("learning_rate",
                   [](TrainerObject& self) {
                     const Computing turn(self.mutex);
                     return self.trainer.learning_rate();
                   })
      .def(
          "set_learning_rate",
          [](TrainerObject& self, std::optional<double> rate) {
            const Computing turn(self.mutex);
            self.trainer.set_learning_rate(rate);
          },
          "rate"_a.none())
      .def_prop_ro("config", [](const TrainerObject& self) { return RunConfig(self.model).json(); })
      .def(
          "first_input",
          [](const TrainerObject& self, std::int64_t label) { return self.model.first_input(label); },
          "label"_a)
      .def(
          "save",
          [](TrainerObject& self, const std::string& folder) {
            const Computing turn(self.mutex);
            self.trainer.save(folder);
          },
          "folder"_a)
      .def(
          "restore",
          [](TrainerObject& self, const std::string& folder) {
            const Computing turn(self.mutex);
            self.trainer.restore(folder);
          },
          "folder"_a)
      .def("model", [](TrainerObject& self) {
        const Computing turn(self.mutex);
        return ModelObject{self.trainer.model()};
      });
}

}  // namespace linnet::python
