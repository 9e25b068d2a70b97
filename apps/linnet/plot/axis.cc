#include "plot/axis.h"

#include <algorithm>
#include <cmath>

namespace linnet {
namespace {
constexpr std::size_t least_ticks = 4, most_ticks = 10;
constexpr double margin = 0.05;  // of the axis
}  // namespace

Axis::Axis(double least, double most, double from, double to, double beneath, bool linear)
    : logarithmic_(!linear && least > 0 && most >= 10 * least), from_(from), to_(to) {
  const auto scaled = [&](double value) { return logarithmic_ ? std::log(value) : value; };
  double low = scaled(least), high = scaled(most);
  // Labels of ten digits tell values apart, no further ones.
  if (const double size = std::max(std::abs(low), std::abs(high)); high - low <= 1e-9 * size) {
    const double width = size == 0 ? 1 : 0.1 * size;
    low -= width / 2;
    high += width / 2;
  }
  const double width = high - low;
  low -= margin * width;
  high += margin * width;
  if (!logarithmic_ && least >= 0) low = std::max(low, 0.0);
  low -= (high - low) * beneath / (1 - beneath);
  least_ = logarithmic_ ? std::exp(low) : low;
  most_ = logarithmic_ ? std::exp(high) : high;
}

double Axis::place(double value) const {
  const double share = logarithmic_ ? std::log(value / least_) / std::log(most_ / least_)
                                    : (value - least_) / (most_ - least_);
  return from_ + share * (to_ - from_);
}

std::vector<double> Axis::round_numbers() const {
  const std::vector<double> found = logarithmic_ ? powers() : std::vector<double>{};
  return found.size() >= least_ticks ? found : multiples();
}

/// Powers of ten, every second or third where there are many, with numbers between them where there are few.
std::vector<double> Axis::powers() const {
  const int first = static_cast<int>(std::floor(std::log10(least_))),
            last = static_cast<int>(std::ceil(std::log10(most_)));
  const int step = std::max(1, (last - first) / static_cast<int>(most_ticks));
  for (const std::vector<double>& digits :
       {std::vector{1.0}, std::vector{1.0, 3.0}, std::vector{1.0, 2.0, 5.0},
        std::vector{1.0, 1.5, 2.0, 3.0, 5.0, 7.0}}) {
    std::vector<double> result;
    for (int power = first; power <= last; power += step)
      for (const double digit : digits)
        if (const double value = digit * std::pow(10, power); value >= least_ && value <= most_)
          result.push_back(value);
    if (result.size() >= least_ticks) return result;
  }
  return {};
}

/// Multiples of the largest step, of one digit or 2.5, that gives enough of them.
std::vector<double> Axis::multiples() const {
  const int largest = static_cast<int>(std::ceil(std::log10(most_ - least_)));
  for (int power = largest;; --power) {
    for (const double digit : {5.0, 2.5, 2.0, 1.0}) {
      const double step = digit * std::pow(10, power);
      const double first = std::ceil(least_ / step), last = std::floor(most_ / step);
      if (last - first + 1 < static_cast<double>(least_ticks)) continue;
      std::vector<double> result;
      for (double i = first; i <= last; ++i) result.push_back(i * step + 0.0);  // no −0
      return result;
    }
  }
}

}  // namespace linnet
