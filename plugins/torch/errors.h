// libbeeline's errors as the exceptions that PyTorch users know.
#pragma once

#include <beeline/beeline.h>

#include <exception>
#include <string>

namespace beeline::pytorch {

// torch.distributed.DistBackendError, except for what the caller did wrong (ValueError)
// and for what is not there (NotImplementedError).
std::exception_ptr as_exception(beeline_status status, const std::string& message);

}  // namespace beeline::pytorch
