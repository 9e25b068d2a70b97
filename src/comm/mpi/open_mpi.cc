#include "comm/mpi/open_mpi.h"

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

namespace linnet {
namespace {

#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION == 4
using Print = int (*)(const char* file, const char* topic, bool header, ...);
using Render = char* (*)(const char* file, const char* topic, bool header, va_list values);

Render render = nullptr;
bool a_rank_has_gone = false;

/// Prints the message of a topic, but for the death of another rank, of which this program speaks itself.
int print(const char* file, const char* topic, bool header, ...) {
  const bool gone = std::strcmp(topic, "peer hung up") == 0;
  a_rank_has_gone = a_rank_has_gone || gone;
  if (gone || (a_rank_has_gone && std::strcmp(topic, "client connect fail") == 0)) return 0;
  va_list values;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wvarargs"  // Open MPI chose `bool`, and does the same.
  va_start(values, header);
#pragma GCC diagnostic pop
  const std::unique_ptr<char, decltype(&std::free)> text(render(file, topic, header, values), &std::free);
  va_end(values);
  if (!text) return 0;
  // There is nobody to tell where it fails.
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.get(), std::strlen(text.get()));
  return 0;
}

/// Open MPI's table of functions of the environment that has started the process.
struct Environment {
  int (*start)();
  int (*finish)();
  void (*abort)(int status, bool report);
  int (*checkpoint)(int state);
};

decltype(Environment::abort) abort_itself = nullptr;
std::function<void()> last_words;
std::thread::id speaker;

void abort_with_words(int status, bool report) {
  if (std::this_thread::get_id() == speaker) last_words();
  abort_itself(status, report);
}

bool is_open_mpi_4() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  return std::strncmp(version, "Open MPI v4.", 12) == 0;
}
#endif

}  // namespace

void print_help_messages_here() {
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION == 4
  if (!is_open_mpi_4()) return;
  auto* const pointer = static_cast<Print*>(dlsym(RTLD_DEFAULT, "opal_show_help"));
  render = reinterpret_cast<Render>(dlsym(RTLD_DEFAULT, "opal_show_help_vstring"));
  if (pointer && render) *pointer = &print;
#endif
}

void on_abort_of_mpi([[maybe_unused]] std::function<void()> words) {
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION == 4
  if (!is_open_mpi_4()) return;
  auto* const environment = static_cast<Environment*>(dlsym(RTLD_DEFAULT, "orte_ess"));
  if (!environment) return;
  last_words = std::move(words);
  speaker = std::this_thread::get_id();
  abort_itself = environment->abort;
  environment->abort = &abort_with_words;
#endif
}

}  // namespace linnet
