#include "io/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/json.h"
#include "support/errors.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Example {
  std::int64_t layers = 8;
  double rate = 1e-4;
  bool tied = false;
  std::string family = "linear";
  std::string note;
  Options options;

  Example() {
    options.add("model.layers", layers, "Layers", 1, 64);
    options.add("training.rate", rate, "Learning rate", 0, 1);
    options.add("model.tied", tied, "Whether the output is tied");
    options.add("model.attention.family", family, "Attention family", {"linear", "softmax"});
    options.add("note", note, "Anything");
  }
};

template <class F>
std::string usage_error(F action) {
  return error_of<UsageError>(action);
}

TEST(Options, RefusesDeepTables) {
  const auto refused = [](const std::string& text) {
    return usage_error([&] { Example().options.parse_toml(text, "deep.toml"); });
  };
  std::string dotted = "a", nested = "a", quoted = "a";
  for (int i = 0; i < 300'000; ++i) {
    dotted += ".a";
    nested += "={a";
    quoted += ".\"]'.#\"";
  }
  // Strings of several lines may end in up to five quotes.
  const std::string literal = "'''a'''''", basic = "\"\"\"a\\\"\"\"\"";
  for (const std::string& text :
       {"[" + dotted + "]\n", "[[" + dotted + "]]\n", dotted + " = 1\n", nested, "x = {" + dotted + " = 1}\n",
        quoted + " = 1\n", "x = " + std::string(300'000, '['), "x = " + literal + "\n[" + dotted + "]\n",
        "x = " + basic + "\n[" + dotted + "]\n", "x = 1 # \"\n[" + dotted + "]\n"})
    EXPECT_THAT(refused(text), AllOf(HasSubstr("deep.toml"), HasSubstr("levels"))) << text.substr(0, 40);
  Example example;
  const std::string dots(1000, '.');
  example.options.parse_toml("note = \"" + dots + "\" # " + dots + "\n[model] # [" + dots + "\nlayers = 2\n",
                             "t");
  EXPECT_EQ(example.note, dots);
  EXPECT_EQ(example.layers, 2);
  example.options.parse_toml("note = '''\n\"" + dots + "'''\n", "t");
  EXPECT_EQ(example.note, "\"" + dots);
}

// What follows the bracket goes into an assertion of the library.
TEST(Options, OutsideStringsAndCommentsTomlIsAscii) {
  // A digit and a Latin, a Cyrillic and a Chinese letter, a space that is none, and a byte that is no letter.
  for (const std::string after : {"\xc8\x88", "\xd0\xb1", "\xe6\x97\xa5", "\xc2\xa0", "\x88"}) {
    Example example;
    EXPECT_THAT(
        usage_error([&] { example.options.parse_toml("# \xc8\x88\nlayers = 2" + after + "\n", "t"); }),
        HasSubstr("t, line 2: expected ASCII outside strings and comments, got byte 0x"));
  }
  Example example;
  example.options.parse_toml("note = \"\xc8\x88\" # \xd0\xb1\n", "t");
}

TEST(Options, RefusesHeadersOfTablesWithoutAName) {
  std::int64_t layers = 0;
  Options options;
  options.add("model.layers", layers, "layers", 0, 9);
  for (const char* header :
       {"[`odel]", "[[=", "[ #", "[\nmodel]", "[.model]", "[\xc3\xa9]", " [ [,", "[\r\n"}) {
    const std::string text = "# a comment\n" + std::string(header) + "\nlayers = 1\n";
    EXPECT_THAT(error_of<UsageError>([&] { options.parse_toml(text, "run.toml"); }),
                AllOf(HasSubstr("run.toml, line"), HasSubstr("name of a table")))
        << header;
  }
  EXPECT_THAT(error_of<UsageError>([&] { options.parse_toml("\xef\xbb\xbf[`]", "run.toml"); }),
              HasSubstr("name of a table"));
  for (const char* header : {"[]", "[[]]", "["})
    EXPECT_THAT(error_of<UsageError>([&] { options.parse_toml(header, "run.toml"); }), HasSubstr("run.toml"));
  for (const char* header : {"[model]", "  [ \"model\" ]", "\t['model']", "\xef\xbb\xbf[model]"}) {
    layers = 0;
    options.parse_toml(std::string(header) + "\nlayers = 3\n", "run.toml");
    EXPECT_EQ(layers, 3) << header;
  }
}

TEST(Options, ErrorsShortenWhatTheyQuote) {
  const std::string huge(2'000'000, 'k');
  Example example;
  for (const std::string& what :
       {usage_error([&] { example.options.parse_toml(huge + " = 1\n", "test"); }),
        usage_error([&] { example.options.parse_toml("model.layers = '" + huge + "'\n", "test"); }),
        usage_error([&] {
          example.options.load_json({{huge, 1}}, "test");
        }),
        usage_error([&] {
          example.options.load_json({{"model", {{"attention", {{"family", huge}}}}}}, "test");
        }),
        usage_error([&] { example.options.apply_assignment(huge + "=1"); }),
        usage_error([&] { example.options.apply_assignment(huge); })})
    EXPECT_LT(what.size(), 500u) << what.substr(0, 100);
}

TEST(Options, SetsEveryKindFromText) {
  Example example;
  example.options.set("model.layers", "1e1");
  example.options.set("training.rate", "2e-3");
  example.options.apply_assignment("model.tied=true");
  example.options.apply_assignment("model.attention.family=softmax");
  example.options.apply_assignment("note=a=b, 12");
  EXPECT_EQ(example.layers, 10);
  EXPECT_EQ(example.rate, 2e-3);
  EXPECT_TRUE(example.tied);
  EXPECT_EQ(example.family, "softmax");
  EXPECT_EQ(example.note, "a=b, 12");
  example.options.set("training.rate", "1");
  EXPECT_EQ(example.rate, 1);
  example.options.set("note", "true");
  EXPECT_EQ(example.note, "true");
  example.options.set("note", "");
  EXPECT_EQ(example.note, "");
}

TEST(Options, RefusesWhatDoesNotFitAndSaysWhy) {
  Example example;
  for (const char* text : {"0", "65", "-1", "1.5", "nan", "inf", "many", "", "8 ", "0x8", "true", "1e30",
                           "9223372036854775808", "99999999999999999999"})
    EXPECT_THAT(usage_error([&] { example.options.set("model.layers", text); }),
                AllOf(HasSubstr("model.layers: expected an integer from 1 to 64, got"), HasSubstr(text)));
  for (const char* text : {"-0.1", "1.1", "nan", "inf", "-inf", "1e999", "", "fast", "false"})
    EXPECT_THAT(usage_error([&] { example.options.set("training.rate", text); }),
                HasSubstr("training.rate: expected a number from 0 to 1, got"));
  for (const char* text : {"1", "yes", "True", ""})
    EXPECT_THAT(usage_error([&] { example.options.set("model.tied", text); }),
                HasSubstr("expected true or false, got"));
  EXPECT_THAT(usage_error([&] { example.options.set("model.attention.family", "sotfmax"); }),
              AllOf(HasSubstr("one of linear, softmax"), HasSubstr("did you mean \"softmax\"")));
  EXPECT_EQ(example.layers, 8);
  EXPECT_EQ(example.rate, 1e-4);
}

TEST(Options, UnknownKeysNameOriginAndNearest) {
  Example example;
  EXPECT_THAT(
      usage_error([&] { example.options.set("model.layer", "1"); }),
      AllOf(HasSubstr("settings"), HasSubstr("\"model.layer\""), HasSubstr("did you mean \"model.layers\"")));
  EXPECT_THAT(usage_error([&] { example.options.set("layers", "1"); }),
              HasSubstr("did you mean \"model.layers\""));
  EXPECT_THAT(usage_error([&] { example.options.set("zzzzzzzzz", "1"); }),
              testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(usage_error([&] { example.options.set("model", "1"); }),
              AllOf(HasSubstr("known key"), testing::Not(HasSubstr("did you mean \"model\""))));
  EXPECT_THAT(usage_error([&] { example.options.parse_toml("[modle]\nlayers = 2\n", "typo.toml"); }),
              AllOf(HasSubstr("typo.toml:1"), HasSubstr("\"modle\""), HasSubstr("did you mean \"model\"?")));
  EXPECT_THAT(usage_error([&] { example.options.apply_assignment("model.layers"); }), HasSubstr("key=value"));
  EXPECT_THAT(usage_error([&] { example.options.apply_assignment("=1"); }), HasSubstr("key=value"));
}

TEST(Options, LoadsToml) {
  Example example;
  example.options.parse_toml(
      "note = 'x'\n[model]\nlayers = 2e0\nattention.family = 'softmax'\n"
      "tied = true\n[training]\nrate = 1 # an integer\n",
      "good.toml");
  EXPECT_EQ(example.layers, 2);
  EXPECT_EQ(example.rate, 1);
  EXPECT_TRUE(example.tied);
  EXPECT_EQ(example.family, "softmax");
  EXPECT_EQ(example.note, "x");
}

TEST(Options, TomlErrorsNameFileAndLine) {
  const auto error = [&](std::string_view text) {
    return usage_error([&] { Example().options.parse_toml(text, "bad.toml"); });
  };
  EXPECT_THAT(error("\n[model]\nlayers = = 2\n"), HasSubstr("bad.toml, line 3, column 10"));
  EXPECT_THAT(error("[model"), HasSubstr("bad.toml, line 1, column 7"));
  EXPECT_THAT(error("[model]\nlayers = 2\nlayers = 3\n"), HasSubstr("line 3"));
  EXPECT_THAT(error("\n[model]\nlayers = 100\n"),
              HasSubstr("bad.toml:3: model.layers: expected an integer from 1 to 64, got 100"));
  EXPECT_THAT(error("[model]\nlayres = 2\n"),
              AllOf(HasSubstr("bad.toml:2"), HasSubstr("did you mean \"model.layers\"")));
  EXPECT_THAT(error("[modle]\n"), HasSubstr("known key, got \"modle\""));
  EXPECT_THAT(error("model = 1\n"), HasSubstr("expected a table of options, got 1"));
  EXPECT_THAT(error("model.layers = '8'\n"), HasSubstr("got \"8\""));
  EXPECT_THAT(error("model.layers = [8]\n"), HasSubstr("got a list"));
  EXPECT_THAT(error("model.layers.x = 8\n"), HasSubstr("got a table"));
  EXPECT_THAT(error("model.tied = 1\n"), HasSubstr("expected true or false, got 1"));
  EXPECT_THAT(error("training.rate = nan\n"), HasSubstr("got nan"));
  EXPECT_THAT(error("training.rate = inf\n"), HasSubstr("got inf"));
  EXPECT_THAT(error("note = 1979-05-27\n"), HasSubstr("date"));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "a.";
  EXPECT_THAT(error(deep + "a = 1\n"), HasSubstr("levels"));
  EXPECT_THAT(error("note = \"\xff\"\n"), HasSubstr("bad.toml, line 1"));
}

TEST(Options, JsonRoundTripsInTheOrderAdded) {
  Example example;
  example.options.set("note", "ü\"");
  example.options.set("training.rate", "0.1");
  const Json saved = example.options.to_json();
  EXPECT_EQ(saved.dump(),
            "{\"model\":{\"layers\":8,\"tied\":false,\"attention\":{\"family\":\"linear\"}},"
            "\"training\":{\"rate\":0.1},\"note\":\"ü\\\"\"}");
  Example other;
  other.options.load_json(parse_json(saved.dump(), "text"), "text");
  EXPECT_EQ(other.options.to_json(), saved);
}

TEST(Options, JsonErrorsNameTheOrigin) {
  const auto error = [](const Json& json) {
    return usage_error([&] { Example().options.load_json(json, "config.json"); });
  };
  EXPECT_THAT(error({{"model", {{"layers", 2.5}}}}),
              HasSubstr("config.json: model.layers: expected an integer from 1 to 64, got 2.5"));
  EXPECT_THAT(error({{"model", {{"layers", 18446744073709551615u}}}}), HasSubstr("got 18446744073709551615"));
  EXPECT_THAT(error({{"model", {{"layers", nullptr}}}}), HasSubstr("got null"));
  EXPECT_THAT(error({{"extra", {{"layers", 1}}}}), HasSubstr("known key, got \"extra\""));
  EXPECT_THAT(error(Json::array()), HasSubstr("config.json: expected an object"));
}

TEST(Options, RowsSayWhatHelpPrints) {
  const Example example;
  const auto rows = example.options.rows();
  ASSERT_EQ(rows.size(), 5u);
  const auto is = [](const Options::Row& row, const char* type, const char* value, const char* range) {
    return row.type == type && row.value == value && row.range == range;
  };
  EXPECT_EQ(rows[0].key, "model.layers");
  EXPECT_EQ(rows[0].help, "Layers");
  EXPECT_TRUE(is(rows[0], "integer", "8", "1 … 64"));
  EXPECT_TRUE(is(rows[1], "number", "0.0001", "0 … 1"));
  EXPECT_TRUE(is(rows[2], "boolean", "false", "true, false"));
  EXPECT_TRUE(is(rows[3], "text", "linear", "linear, softmax"));
  EXPECT_TRUE(is(rows[4], "text", "", ""));
}

TEST(Options, TakeEnumerationsByTheirNames) {
  enum class Colour { red, blue_green };
  Colour colour = Colour::red;
  Options options;
  options.add("paint.colour", colour, "what it looks like", {"red", "blue-green"});
  options.set("paint.colour", "blue-green");
  EXPECT_EQ(colour, Colour::blue_green);
  EXPECT_EQ(options.to_json()["paint"]["colour"], "blue-green");
  options.parse_toml("paint.colour = 'red'", "test");
  EXPECT_EQ(colour, Colour::red);
  EXPECT_EQ(options.rows().front().type, "text");
  EXPECT_EQ(options.rows().front().range, "red, blue-green");
  EXPECT_THAT(error_of([&] { options.set("paint.colour", "gren"); }),
              testing::HasSubstr("expected one of red, blue-green"));
  EXPECT_THROW(options.set("paint.colour", "1"), UsageError);
  // A number that is none of them is no value that could be read again.
  colour = static_cast<Colour>(5);
  EXPECT_THROW(options.load_json(options.to_json(), "itself"), UsageError);
}

// "model.layers" = 3 would otherwise override layers = 2 in the table, without a word.
TEST(Options, RefusesNamesWithDots) {
  for (const char* text :
       {"\"model.layers\" = 3\n[model]\nlayers = 2\n", "[model]\n'attention.family' = \"softmax\"\n"})
    EXPECT_THAT(usage_error([&] { Example().options.parse_toml(text, "t.toml"); }),
                AllOf(HasSubstr("t.toml"), HasSubstr("name with a dot")));
  EXPECT_THAT(usage_error([&] {
                Example().options.load_json(Json{{"model.layers", 3}}, "config.json");
              }),
              AllOf(HasSubstr("config.json"), HasSubstr("\"model.layers\"")));
  Example example;
  example.options.parse_toml("model.layers = 3\n", "t.toml");
  EXPECT_EQ(example.layers, 3);
}

}  // namespace
}  // namespace linnet
