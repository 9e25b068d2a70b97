#pragma once

#include <filesystem>
#include <string>

namespace linnet {

/// "1.2 MB", decimal units.
std::string bytes_text(double bytes);

/// Bytes of memory that this process can still take: what the machine has free, or less where its control
/// group or one above it has a limit (memory.max of version 2, memory.limit_in_bytes of version 1). Cache of
/// files that the system gives back on demand counts as free. Infinite where nothing says. `root` is the
/// folder in which proc/ and sys/ are looked up.
double available_memory(const std::filesystem::path& root = "/");

/// So few may be taken without `require_memory`, which reads files of the system.
inline constexpr double unasked_bytes = 16e6;

/// Throws OutOfMemoryError where less memory is available than `bytes`, which `what` needs at the very least:
/// asking for it would end in this or other programs being killed.
void require_memory(const std::string& what, double bytes);

}  // namespace linnet
