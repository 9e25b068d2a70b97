#include "io/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "io/file.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Json, RoundTripsAndKeepsTheOrder) {
  const TemporaryFolder folder;
  const Json value = {{"z", 1}, {"a", {{"y", 0.1}, {"b", "text"}}}, {"list", {1, 2}}};
  write_json(folder / "file.json", value);
  EXPECT_EQ(read_json(folder / "file.json"), value);
  EXPECT_THAT(read_file(folder / "file.json"),
              testing::StartsWith("{\n  \"z\": 1,\n  \"a\": {\n    \"y\": 0.1,"));
}

TEST(Json, WritesEvenWhatJsonCannotSay) {
  const TemporaryFolder folder;
  write_json(folder / "file.json", {{"a", std::numeric_limits<double>::quiet_NaN()}, {"b", "\xff"}});
  EXPECT_TRUE(read_json(folder / "file.json")["a"].is_null());
}

TEST(Json, ErrorsNameFileLineAndColumn) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { read_json(folder.file("bad.json", "{\n  \"a\": 1,\n  \"b\": x\n}")); }),
              AllOf(HasSubstr("bad.json, line 3, column 8"), HasSubstr("syntax error"),
                    testing::Not(HasSubstr("exception"))));
  EXPECT_THAT(error_of([] { parse_json("", "origin"); }), HasSubstr("origin, line 1, column 1"));
  EXPECT_THAT(error_of([] { parse_json("[1e999]", "origin"); }), HasSubstr("origin"));
  EXPECT_THAT(error_of([] { parse_json("[\"\xff\"]", "origin"); }),
              AllOf(HasSubstr("line 1"), HasSubstr("UTF-8")));
  EXPECT_THAT(error_of([] { parse_json("{} {}", "origin"); }), HasSubstr("column 4"));
}

TEST(Json, RefusesNamesGivenTwiceInOneObject) {
  EXPECT_THAT(error_of([] { parse_json("{\"a\": {\"b\": 1, \"b\": 2}}", "origin"); }),
              HasSubstr("\"b\" twice"));
  EXPECT_NO_THROW(parse_json("{\"a\": {\"a\": 1}, \"b\": [{\"a\": 1}, {\"a\": 2}]}", "origin"));
}

TEST(Json, RefusesBytesOfZero) {
  // The library ends there without a word.
  for (const char* text : {"{\"a\": 1}@", "{\"a\": 1@}", "@"}) {
    std::string damaged = text;
    std::ranges::replace(damaged, '@', '\0');
    EXPECT_THAT(error_of([&] { parse_json(damaged, "origin"); }), HasSubstr("byte of 0"));
  }
}

TEST(Json, KeepsManyMembersInTheirOrder) {
  constexpr int count = 200'000;
  Json object = Json::object();
  for (int i = 0; i < count; ++i) append_member(object, std::to_string(i), i);
  const Json read = parse_json(object.dump(), "origin");
  int expected = 0;
  for (const auto& [name, value] : read.items()) {
    EXPECT_EQ(value.get<int>(), expected) << name;
    ++expected;
  }
  EXPECT_EQ(expected, count);
}

TEST(Json, ErrorsShortenWhatTheyQuote) {
  const std::string huge(1'000'000, 'x');
  EXPECT_LT(error_of([&] { parse_json("{\"" + huge + "\": 1, \"" + huge + "\": 2}", "origin"); }).size(),
            1000u);
  EXPECT_LT(error_of([&] { parse_json("[\"" + huge + "\" 1]", "origin"); }).size(), 1000u);
}

TEST(Json, RefusesDeepNesting) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string text;
    for (int i = 0; i < 200000; ++i) text += open;
    EXPECT_THAT(error_of([&] { parse_json(text, "origin"); }), HasSubstr("levels"));
  }
}

TEST(Json, EveryTruncationIsAnError) {
  const std::string text = R"({"a": [1, 2.5e3, true, null], "b": {"c": "d\u00e9"}})";
  EXPECT_NO_THROW(parse_json(text, "whole"));
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_THROW(parse_json(text.substr(0, size), "cut"), Error) << size;
}

TEST(Json, TextIsAsAFileGivesItBack) {
  const TemporaryFolder folder;
  for (const auto& [text, expected] : {std::pair<std::string, std::string>("plain", "plain"),
                                       {"d\xc3\xa9", "d\xc3\xa9"},
                                       {"\"\\\n\t", "\"\\\n\t"},
                                       {"a\xff"
                                        "b",
                                        "a\xef\xbf\xbd"
                                        "b"},
                                       {"cut \xc3", "cut \xef\xbf\xbd"},
                                       {"", ""}}) {
    EXPECT_EQ(as_json_text(text), expected);
    write_json(folder / "text.json", Json{{"text", text}});
    EXPECT_EQ(read_json(folder / "text.json")["text"].get<std::string>(), expected);
  }
}

TEST(Json, ALineHasNoControlCharacters) {
  EXPECT_EQ(as_line("d\xc3\xa9 \"\\"), "d\xc3\xa9 \"\\");
  EXPECT_EQ(as_line("a\n\x1b[31mb\t\x7f\xff"), "a  [31mb  \xef\xbf\xbd");
}

}  // namespace
}  // namespace linnet
