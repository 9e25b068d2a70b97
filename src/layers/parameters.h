#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/dense.h"
#include "linnet/tensor.h"

namespace linnet {

/// Where a parameter lies in a flat buffer of all of them: of the values, of the gradients or of an
/// optimiser's moments.
class ParameterPlace {
 public:
  ParameterPlace() = default;
  ParameterPlace(std::int64_t offset, Shape shape) : offset_(offset), shape_(std::move(shape)) {}

  template <class T>
  View<T> of(std::span<T> buffer) const {
    return View<T>(buffer.data() + offset_, std::span<const std::int64_t>(shape_));
  }

  std::int64_t offset() const { return offset_; }
  const Shape& shape() const { return shape_; }

 private:
  std::int64_t offset_ = 0;
  Shape shape_;
};

/// The values of all parameters for layers that take them up. Whoever reads them from a file has each one
/// filled in when it is asked for and freed when its layer holds it in another form, so that no more than one
/// lies in memory twice.
class ParameterValues {
 public:
  /// Values that are there already; their memory must stay.
  ParameterValues(std::span<const float> values) : values_(values) {}
  ParameterValues(std::span<float> values) : values_(values) {}
  /// `fill` writes a parameter into the buffer before it is read, once each; `release` is told of those that
  /// are not read again.
  using Hook = std::function<void(const ParameterPlace&)>;
  ParameterValues(std::span<const float> values, Hook fill, Hook release)
      : values_(values), fill_(std::move(fill)), release_(std::move(release)) {}

  View<const float> of(const ParameterPlace& place) const {
    if (fill_) fill_(place);
    return place.of(values_);
  }
  void release(const ParameterPlace& place) const {
    if (release_) release_(place);
  }

 private:
  std::span<const float> values_;
  Hook fill_, release_;
};

/// Told by a backward pass how far it has come: the gradients of all parameters from `offset` on, in a flat
/// buffer, are complete. Offsets only go down, to 0 at the end.
using GradientsComplete = std::function<void(std::int64_t offset)>;

/// First value of element `index` of a parameter, given a draw from the standard normal distribution.
using Initialiser = std::function<float(std::int64_t index, double normal)>;

Initialiser constant(float value);
Initialiser normal(double deviation);

/// What the numbers of a parameter have to be beside finite.
enum class NumberRange { any, positive, not_negative, sign };

/// For people: "positive numbers", "signs of 1 and -1".
const char* name_of(NumberRange range);

/// Whether the range holds a finite number.
bool holds(NumberRange range, float number);

/// Names, shapes and places of a model's parameters. They lie in one buffer, each aligned to 64 bytes, so
/// that an optimiser, a norm or a checkpoint treats them as one array; what lies between two is 0 and stays
/// 0.
class ParameterTable {
 public:
  struct Row {
    std::string name;
    ParameterPlace place;
    std::int64_t count = 0;
    bool weight_decay = false;  ///< whether it applies: to matrices, not to gains, biases and positions
    Initialiser initial;
    bool packed = false;   ///< the weights of dense products, which hold them packed
    bool product = false;  ///< those of them that are held as `weight_type` says
    bool trained = true;   ///< random draws are not: their gradients are 0, and a model's file may lack them
    NumberRange range = NumberRange::any;
    std::uint32_t random = 0;  ///< which of a seed's random numbers `initial` gets
  };

  /// `training_type` is how products round in training, where the weights themselves stay f32.
  explicit ParameterTable(kernels::WeightType weight_type = kernels::WeightType::f32,
                          kernels::WeightType training_type = kernels::WeightType::f32)
      : weight_type_(weight_type), training_type_(training_type) {}

  /// Which random numbers a parameter begins with: those after the parameters added before, or others, where
  /// only some attentions have it. So the rest of a model begins alike with every attention.
  enum class Numbers { common, apart };

  ParameterPlace add(std::string name, Shape shape, Initialiser initial, bool weight_decay,
                     Numbers numbers = Numbers::common);

  /// The weights [outputs, inputs] of dense products, which these pack; f32 where `exact`.
  ParameterPlace add_weights(std::string name, Shape shape, Initialiser initial, bool exact = false);

  /// What is kept with the parameters and not trained.
  ParameterPlace add_untrained(std::string name, Shape shape, Initialiser initial,
                               NumberRange range = NumberRange::any);

  /// How dense products hold their weights; the buffer is f32 for all.
  kernels::WeightType weight_type() const { return weight_type_; }

  /// How dense products round: as the weights are held, or as training does. Training has nothing from
  /// products that the machine would widen.
  kernels::WeightType product_type() const {
    if (weight_type_ != kernels::WeightType::f32) return weight_type_;
    return kernels::multiplies_fast(training_type_) ? training_type_ : kernels::WeightType::f32;
  }

  /// Rounds the weights of dense products to what their type can hold: `values` are those of one row.
  void round_row(std::size_t row, std::span<float> values) const;

  /// Bytes of all parameters, or of those of a row, as their types hold them.
  std::size_t bytes() const;
  std::size_t bytes(const Row& row) const;

  /// Floats in a buffer of all parameters, padding included.
  std::int64_t size() const { return size_; }

  /// Numbers that are trained.
  std::int64_t parameter_count() const;

  const std::vector<Row>& rows() const { return rows_; }

  /// Index of the row at this place, which has to be the table's.
  std::size_t row_at(const ParameterPlace& place) const;

  /// Writes the initial values, decided by the seed and the order in which the parameters were added.
  void initialise(std::span<float> values, std::uint64_t seed) const;
  /// The same for one row, whose values these are.
  void initialise_row(std::span<float> values, std::size_t row, std::uint64_t seed) const;

 private:
  kernels::WeightType weight_type_, training_type_;
  std::vector<Row> rows_;
  std::int64_t size_ = 0;
  std::uint32_t common_ = 0, apart_ = 0;  // parameters of either kind of numbers
};

}  // namespace linnet
