// Whether this code runs in the process that it thinks it runs in.
#pragma once

namespace beeline::preload::files {

// False between vfork and exec, in the child.
bool is_home_process();

}  // namespace beeline::preload::files
