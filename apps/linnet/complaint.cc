#include "complaint.h"

#include <cstdio>
#include <new>

#include "base/fail.h"
#include "command_line.h"

namespace linnet {

Complaint complaint_of(const std::exception& error) {
  constexpr int failed = 1, usage = 2;
  if (dynamic_cast<const CommandLineError*>(&error) != nullptr) return {error.what(), usage};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return {"linnet: [memory] expected more memory than this machine has free", failed};
  const bool of_usage = dynamic_cast<const UsageError*>(&error) != nullptr;
  return {fmt::format("linnet: {}", error.what()), of_usage ? usage : failed};
}

void print_complaint(const Complaint& complaint) { std::fputs((complaint.line + "\n").c_str(), stderr); }

}  // namespace linnet
