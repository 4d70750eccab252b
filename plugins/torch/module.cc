// What Python sees of the extension; the package beeline/ wraps it.
#include <beeline/beeline.h>
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/headeronly/version.h>

#include "backend.h"

namespace beeline::pytorch {

namespace {

namespace py = pybind11;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

BackendPtr create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                  std::chrono::milliseconds timeout, const std::string& group) {
  return BackendBeeline::create(store, rank, size, timeout, group);
}

BackendBeeline& ours(const BackendPtr& backend) {
  auto* const found = dynamic_cast<BackendBeeline*>(backend.get());
  TORCH_CHECK_TYPE(found != nullptr, "beeline: this is a backend of ", backend->getBackendName());
  return *found;
}

void close_backend(const BackendPtr& backend) { ours(backend).close(); }

bool is_closed(const BackendPtr& backend) { return ours(backend).is_closed(); }

}  // namespace

}  // namespace beeline::pytorch

// The class itself needs no binding: to Python it is a c10d Backend.
PYBIND11_MODULE(_torch, module) {
  using namespace beeline::pytorch;
  module.doc() = "Beeline's backend for torch.distributed";
  module.attr("built_for") = TORCH_VERSION;
  module.attr("library_version") = beeline_version();

  // All of these may wait for a thread that wants the GIL.
  using WithoutGil = py::call_guard<py::gil_scoped_release>;
  module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
             py::arg("group"), WithoutGil(), "Joins a group; returns once all ranks have.");
  module.def("close", &close_backend, py::arg("backend"), WithoutGil(),
             "Ends a backend without waiting for operations that are under way.");
  module.def("is_closed", &is_closed, py::arg("backend"), WithoutGil(),
             "Whether it has been shut down or closed.");
}
