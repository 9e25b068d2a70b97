#include <fmt/core.h>

#include <filesystem>
#include <system_error>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "data/copy_task.h"
#include "data/digits.h"
#include "data/instruments.h"
#include "data/midi_pieces.h"
#include "data/reverse_task.h"
#include "data/text.h"
#include "data/token_file.h"
#include "io/file.h"
#include "outputs.h"
#include "report.h"
#include "show_data.h"
#include "tokenizer.h"

namespace linnet {
namespace {

struct Arguments {
  std::string out, text;
  std::int64_t count = 20000, test = 2000, size = 28, length = 256, letters = 64, pieces = 1000;
  std::uint64_t seed = 1;
  Instruments instruments;
  MidiOptions midi;
  std::vector<std::string> files;
  bool skip = false;
};

}  // namespace

void add_data(Command& program) {
  Command data = program.add_subcommand(
      "data",
      "Show what is read from data; write synthetic data sets, tokens of MIDI files, tokenizers of text");
  data.require_subcommand();
  auto arguments = std::make_shared<Arguments>();
  add_show(data);

  Command digits =
      data.add_subcommand("digits", "Synthetic handwritten digits as four IDX files with the names of MNIST");
  digits.footer("Example: linnet data digits --out my-digits --size 28 --count 60000");
  digits.add_option("--out", arguments->out, "new or empty folder").required();
  digits.add_option("--count", arguments->count, "number of training digits")
      .check(whole(1, most_count))
      .capture_default_str();
  digits.add_option("--test", arguments->test, "number of test digits")
      .check(whole(1, most_count))
      .capture_default_str();
  digits.add_option("--size", arguments->size, "height and width in pixels")
      .check(whole(8, 64))
      .capture_default_str();
  digits.add_option("--seed", arguments->seed, "seed of all digits").check(whole(0)).capture_default_str();
  digits.callback([=] {
    write_digits(arguments->out, arguments->count, arguments->test, arguments->size, arguments->seed);
    fmt::print("{} training and {} test digits of {}×{}: {}\n", arguments->count, arguments->test,
               arguments->size, arguments->size, arguments->out);
  });

  Command copy = data.add_subcommand("copy", "Sequences of the copy task as safetensors: tokens and targets");
  copy.footer("Example: linnet data copy --out copy.safetensors --length 256");
  copy.add_option("--out", arguments->out, "safetensors file").required();
  copy.add_option("--count", arguments->count, "number of sequences")
      .check(whole(1, most_count))
      .capture_default_str();
  copy.add_option("--length", arguments->length, "tokens per sequence")
      .check(whole(4, 1 << 24))
      .capture_default_str();
  copy.add_option("--seed", arguments->seed, "seed of all sequences").check(whole(0)).capture_default_str();
  copy.callback([=] {
    check_outputs("data", {{"--out", arguments->out}});
    write_copy(arguments->out, arguments->count, arguments->length, arguments->seed);
    print_summary(arguments->out, fmt::format("{} sequences of {} tokens: {}\n", arguments->count,
                                              arguments->length, arguments->out));
  });

  Command reverse =
      data.add_subcommand("reverse", "Strings of letters and the same backwards, as lines of text");
  reverse.footer("Example: linnet data reverse --out reverse.tsv --letters 64");
  reverse.add_option("--out", arguments->out, "text file of lines source<tab>target").required();
  reverse.add_option("--count", arguments->count, "number of lines")
      .check(whole(1, most_count))
      .capture_default_str();
  reverse.add_option("--letters", arguments->letters, "letters of every string")
      .check(whole(1, 1 << 20))
      .capture_default_str();
  reverse.add_option("--seed", arguments->seed, "seed of all strings").check(whole(0)).capture_default_str();
  reverse.callback([=] {
    check_outputs("data", {{"--out", arguments->out}});
    write_reversals(arguments->out, arguments->count, arguments->letters, arguments->seed);
    print_summary(arguments->out, fmt::format("{} pairs of {} letters: {}\n", arguments->count,
                                              arguments->letters, arguments->out));
  });

  Command instruments = data.add_subcommand(
      "instruments", "Music of synthetic instruments, clean and with noise, as four WAV files");
  instruments.footer(
      "clean.wav and noisy.wav are for training, clean-test.wav and noisy-test.wav for testing. The noise "
      "is\n"
      "white for three quarters of its power, and a hum of 50, 150 and 250 Hz for the rest.\n"
      "Example: linnet data instruments --out band --seconds 120 --noise 6");
  instruments.add_option("--out", arguments->out, "new or empty folder").required();
  instruments.add_option("--seconds", arguments->instruments.seconds, "length of the training part")
      .check(number(1, 36000))
      .capture_default_str();
  instruments.add_option("--test", arguments->instruments.test_seconds, "seconds of the test part")
      .check(number(1, 36000))
      .capture_default_str();
  instruments.add_option("--rate", arguments->instruments.rate, "samples a second")
      .check(whole(4000, 48000))
      .capture_default_str();
  instruments
      .add_option("--noise", arguments->instruments.noise,
                  "signal-to-noise ratio of the noisy files in decibels")
      .check(number(-60, 100))
      .capture_default_str();
  instruments.add_option("--seed", arguments->instruments.seed, "seed of melodies and noise")
      .check(whole(0))
      .capture_default_str();
  instruments.callback([=] {
    const Instruments& music = arguments->instruments;
    write_instruments(arguments->out, music);
    fmt::print("{} s for training and {} s for testing at {} Hz, {} dB of signal to noise: {}\n",
               music.seconds, music.test_seconds, music.rate, music.noise, arguments->out);
  });

  Command midi =
      data.add_subcommand("midi", "Pieces of music in MIDI files as tokens, a field for each voice");
  midi.footer(
      "Token 0 is silence, token 1 the first pitch. Where a piece has no more tracks and channels than "
      "voices, "
      "and\n"
      "each sounds one note at a time, these are the voices, the highest first. Otherwise the notes of a\n"
      "chord go to free voices from high to low, so that voices move the least. Drums are left out, and\n"
      "repeated notes are one.\n"
      "Example: linnet data midi chorales --out chorales.safetensors");
  midi.add_option("files", arguments->files, "MIDI files, or folders with files called .mid or .midi")
      .required();
  midi.add_option("--out", arguments->out, "safetensors file").required();
  midi.add_option("--voices", arguments->midi.voices, "voices, the fields of a step")
      .check(whole(1, 64))
      .capture_default_str();
  midi.add_option("--steps-per-quarter", arguments->midi.steps_per_quarter, "steps of a quarter note")
      .check(whole(1, 960))
      .capture_default_str();
  midi.add_option("--first-pitch", arguments->midi.first_pitch, "MIDI's number of the pitch of token 1")
      .check(whole(0, 127))
      .capture_default_str();
  midi.add_option("--last-pitch", arguments->midi.last_pitch, "MIDI's number of the highest pitch")
      .check(whole(0, 127))
      .capture_default_str();
  midi.add_flag("--skip", arguments->skip, "leave out files that hold no piece or are damaged, and say so");
  midi.callback([=] {
    std::vector<NamedPath> inputs;
    for (const std::string& file : arguments->files) inputs.push_back({"the music's", file});
    check_outputs("data", {{"--out", arguments->out}}, inputs);
    // Files of tokens have this name; a pipe need not.
    std::error_code none;
    const bool file = !std::filesystem::exists(arguments->out, none) ||
                      std::filesystem::is_regular_file(arguments->out, none);
    if (file && extension_of(arguments->out) != ".safetensors")
      fail<UsageError>("data", "expected --out with a name in .safetensors, got {}", arguments->out);
    const MidiOptions& options = arguments->midi;
    const MidiPieces pieces =
        read_midi_pieces({arguments->files.begin(), arguments->files.end()}, options, arguments->skip);
    write_token_file(arguments->out, pieces.tokens, pieces.offsets, options.voices);
    for (const std::string& sentence : pieces.left_out) print_note("left out: " + sentence);
    std::string summary =
        fmt::format("pieces: {}, with {} steps of {} voices: {}\n", pieces.offsets.size() - 1,
                    pieces.offsets.back(), options.voices, arguments->out);
    const auto add = [&](std::int64_t notes, const std::string& why) {
      if (notes > 0) summary += fmt::format("left out: {} notes {}\n", notes, why);
    };
    add(pieces.crowded, fmt::format("beyond {} voices", options.voices));
    add(pieces.outside, fmt::format("of pitches outside {} … {}", options.first_pitch, options.last_pitch));
    print_summary(arguments->out, summary);
  });

  Command tokenizer = data.add_subcommand("tokenizer", "A tokenizer of a text, as a model of SentencePiece");
  tokenizer.footer("Example: linnet data tokenizer book.txt --size 1000 --out book.model");
  tokenizer.add_option("text", arguments->text, "text file, of which the last tenth is left out").required();
  tokenizer.add_option("--out", arguments->out, "file for the model").required();
  tokenizer.add_option("--size", arguments->pieces, "number of pieces, which is the vocabulary")
      .check(whole(257, 1 << 20))
      .capture_default_str();
  tokenizer.callback([=] {
    check_outputs("data", {{"--out", arguments->out}}, {{"the text's", arguments->text}});
    std::string text = read_file(arguments->text);
    text.resize(training_bytes(text));
    write_file_atomically(arguments->out, train_tokenizer(text, arguments->pieces));
    print_summary(arguments->out, fmt::format("{} pieces: {}\n", arguments->pieces, arguments->out));
  });
}

}  // namespace linnet
