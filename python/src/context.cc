#include "context.h"

#include "errors.h"
#include "linnet/instruction_set.h"
#include "linnet/version.h"
#include "numbers.h"

namespace nb = nanobind;

namespace linnet::python {

void bind_context(nb::module_& module) {
  nb::class_<SharedContext>(module, "Context",
                            "What computes: a number of threads and their working memory.\n\n"
                            "Any number of contexts may work at once. Calls that share a context take turns. "
                            "Results do not depend on\nthe number of threads, bit for bit.\n\n"
                            "Parameters\n----------\n"
                            "threads : int\n"
                            "    Threads, the caller's included; 0 stands for one per processor.")
      .def(
          "__init__",
          [](SharedContext* self, nb::handle threads) {
            new (self) SharedContext(static_cast<int>(whole_of(threads, "context", "threads", 0, 1024)));
          },
          nb::arg("threads") = 0, nb::sig("def __init__(self, threads: int = 0) -> None"))
      .def_prop_ro("threads", [](const SharedContext& self) { return self.context.threads(); })
      .def_prop_ro(
          "workspace_bytes",
          [](SharedContext& self) {
            const Computing turn(self.mutex);
            return self.context.workspace_bytes();
          },
          "Bytes of working memory that all threads hold, between calls.")
      .def("__repr__", [](const SharedContext& self) {
        return nb::str("linnet.Context(threads={})").format(self.context.threads());
      });
  module.def("available_processors", &available_processors, "Processors that the process may run on.");
  module.def(
      "instruction_set", &instruction_set,
      "The instruction set that the kernels use, by Highway's name: AVX3 (AVX-512), AVX2, SSE4, SCALAR. The "
      "environment\nvariable LINNET_ISA limits it before the import.");
  module.attr("version") = version();
}

}  // namespace linnet::python
