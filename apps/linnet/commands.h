#pragma once

#include "command_line.h"
#include "linnet/communicator.h"

// Each adds its command to the program; what a command does runs while the line is parsed.

namespace linnet {

void add_train(Command& program, Communicator& ranks);
void add_generate(Command& program, Communicator& ranks);
void add_evaluate(Command& program, Communicator& ranks);
void add_classify(Command& program);
void add_fill(Command& program);
void add_filter(Command& program);
void add_forecast(Command& program);
void add_score(Command& program);
void add_embed(Command& program);
void add_attend(Command& program);
void add_approximate(Command& program);
void add_bench(Command& program);
void add_inspect(Command& program);
void add_convert(Command& program);
void add_data(Command& program);
void add_families(Command& program);
void add_plot(Command& program);
void add_runs(Command& program);
/// A hidden command: it prints the shells' completions of the commands that were added.
void add_completions(Command& program);

}  // namespace linnet
