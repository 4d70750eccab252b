// What a system call says, as text that can be recorded like a file.
#pragma once

#include <string>

#include "doctor/host/evidence.h"

namespace beeline::doctor {

// Names:
//   addresses       getifaddrs(): "eth0 10.0.0.1/24" and "eth0 fe80::1/64", a line each
//   shm             statvfs(/dev/shm): "size_bytes=… free_bytes=…"
//   clock           adjtimex(): "synchronized" or "unsynchronized"
//   access PATH     open(PATH, O_RDWR): "ok" or the error's name
//   user            "uid=…"
// Everything else is absent. (`environment` and `hostname` come from whoever starts the doctor.)
Reading system_fact(const std::string& name);

}  // namespace beeline::doctor
