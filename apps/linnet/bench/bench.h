#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "command_line.h"
#include "io/json.h"
#include "linnet/context.h"

namespace linnet {

/// What every benchmark takes.
struct BenchOptions {
  std::vector<int> threads;
  double seconds = 1;  ///< measured a row, at least
  std::int64_t repeat = 1;
  bool json = false;

  /// Returns --seconds, which has no use where a number of calls is measured.
  Option add_to(Command& command);

  /// The rows that `measure` appends, for each number of threads. Repeated, it appends the same rows each
  /// time; then these are the `medians_of` all. After SIGINT or SIGTERM, the row that is measured then is the
  /// last one; a second one ends the program at once.
  Json rows(const std::function<void(Context& context, Json& rows)>& measure) const;
};

/// To be called once the rows are printed: ends the program by the signal that stopped their measuring, if
/// one did.
void end_where_stopped();

/// Rows that were measured several times, as one array: each number is the median of those in its place.
/// Adds `repeats` and `spread`, which has for every real number of a row, in its place, largest less smallest
/// in multiples of the median.
Json medians_of(const std::vector<Json>& repetitions);

/// The columns of a table of rows, with the spread of one of them where the rows were repeated.
std::vector<std::string> columns_with_spread(const Json& rows, std::vector<std::string> columns,
                                             const std::string& column);

/// Names of attention families, all of them known; or `all` of the table, of which what cannot be is left out
/// instead of refused.
struct Families {
  std::vector<std::string> names;
  bool all = false;

  /// Throws UsageError with the sentence, or says that the family is left out.
  void refuse(const std::string& family, const std::string& sentence) const;
};
Families families_of(const std::string& option, const std::string& text);

/// Ceilings of this machine with the context's number of threads, products with weights of `dtype` (f32,
/// bf16, int8), measured once for each in every repetition.
struct Ceiling {
  double gemm_gflops = 0;
  double copy_gbs = 0;
};
Ceiling ceiling(Context& context, const std::string& dtype = "f32");

/// Prints the ceilings that the rows were held against, and an empty line.
void print_ceilings(const Json& rows);

/// To be called before the work of a row: as `leave_where_stopped`, measures the ceilings, which take memory
/// of their own, and lets the peak of memory begin anew.
void begin_row(Context& context, const std::string& dtype);

/// Ends `BenchOptions::rows` where a signal asks for it.
void leave_where_stopped();

/// The fields that all rows share: bench, threads, isa, dtype, ceiling; and the peak memory since the last
/// `begin_row`.
Json bench_row(Context& context, const std::string& bench, const std::string& dtype = "f32");

/// Seconds of repeated calls, after one that warms up: at least `least` calls, then until `seconds` are over.
/// Two are enough where one takes seconds, and the first counts.
std::vector<double> time_calls(const std::function<void()>& call, double seconds, int least = 5);

void add_bench_attention(Command& bench);
void add_bench_train(Command& bench);
void add_bench_generate(Command& bench);

}  // namespace linnet
