// The environment of a training job, as NCCL would read it here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/host/devices.h"

namespace beeline::doctor {

// A variable and where it is set: the environment first, then /etc/nccl.conf.
struct Variable {
  std::string value;
  std::string evidence;
};
std::optional<Variable> nccl_variable(Case& c, std::string_view name);

// NCCL's lists: "mlx5_0,mlx5_1:1", "=mlx5_0", "^mlx5_2"; prefixes unless '='.
struct NameList {
  bool exclude = false, exact = false;
  struct Entry {
    std::string name;
    int port = -1;
  };
  std::vector<Entry> entries;
  bool names(const std::string& name, int port) const;  // an entry matches
  bool selects(const std::string& name, int port) const { return names(name, port) != exclude; }
};
NameList parse_names(std::string_view text);

// Active RDMA ports that NCCL_IB_HCA leaves to a job.
std::vector<Port> selected_ports(Case& c);

}  // namespace beeline::doctor
