#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// Each adds its command to the program; what a command does runs while CLI11 parses the line.

namespace linnet {

void add_train(CLI::App& program);
void add_generate(CLI::App& program);
void add_evaluate(CLI::App& program);
void add_fill(CLI::App& program);
void add_embed(CLI::App& program);
void add_attend(CLI::App& program);
void add_approximate(CLI::App& program);
void add_bench(CLI::App& program);
void add_inspect(CLI::App& program);
void add_convert(CLI::App& program);
void add_data(CLI::App& program);
void add_families(CLI::App& program);
void add_plot(CLI::App& program);
/// A hidden command: it prints the shells' completions of the commands that were added.
void add_completions(CLI::App& program);

/// The commands below a command, less the hidden ones.
std::vector<const CLI::App*> shown_commands(const CLI::App& command);

}  // namespace linnet
