#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "io/json_fwd.h"

namespace linnet {

/// Adds a member whose name the object does not have yet, in constant time: `object[name]` compares the name
/// with all others.
void append_member(Json& object, const std::string& name, Json value);

/// Throws Error naming the file, line and column, and the reason; among them a name given twice in one
/// object, more than 100 levels of nesting and more than 64 MiB.
Json read_json(const std::filesystem::path& path);

/// The same for text in memory; `origin` stands for the file in errors.
Json parse_json(std::string_view text, const std::string& origin);

/// The text as `write_json` writes it and `read_json` gives it back: bytes that are no UTF-8 become U+FFFD.
std::string as_json_text(const std::string& text);

/// The same with blanks for control characters: text as a line, or a part of one, that people see.
std::string as_line(const std::string& text);

/// The text with blanks for control characters other than tab and newline, those of C1 in UTF-8 included: a
/// terminal would obey them.
std::string printable(std::string text);

/// The text of a file: indented by two spaces, with a newline at its end. Numbers that are not finite become
/// null, as JSON demands.
std::string json_text(const Json& value);

/// Writes it atomically (io/file.h).
void write_json(const std::filesystem::path& path, const Json& value);

}  // namespace linnet
