#include "doctor/host/checks/nccl_env.h"

#include "doctor/host/text.h"

namespace beeline::doctor {

std::optional<Variable> nccl_variable(Case& c, std::string_view name) {
  if (const auto value = variable(c, name))
    return Variable{*value, "environment: " + std::string(name) + "=" + *value};
  const auto file = c.file("/etc/nccl.conf");
  for (const auto& line : lines_of(file.value)) {
    const auto at = line.find('=');
    if (at != std::string::npos && trim(std::string_view(line).substr(0, at)) == name)
      return Variable{std::string(trim(std::string_view(line).substr(at + 1))), cite(file, line)};
  }
  return std::nullopt;
}

NameList parse_names(std::string_view text) {
  NameList list;
  text = trim(text);
  if (starts_with(text, "^")) {
    list.exclude = true;
    text.remove_prefix(1);
  }
  if (starts_with(text, "=")) {
    list.exact = true;
    text.remove_prefix(1);
  }
  for (const auto& word : split(text, ",")) {
    const auto parts = split(word, ":");
    if (parts.empty()) continue;
    list.entries.push_back(
        {parts[0], parts.size() > 1 ? static_cast<int>(number(parts[1]).value_or(-1)) : -1});
  }
  return list;
}

bool NameList::names(const std::string& name, int port) const {
  for (const auto& entry : entries) {
    const bool same = exact ? name == entry.name : starts_with(name, entry.name);
    if (same && (entry.port < 0 || port < 0 || entry.port == port)) return true;
  }
  return false;
}

std::vector<Port> selected_ports(Case& c) {
  const auto wanted = nccl_variable(c, "NCCL_IB_HCA");
  const auto list = parse_names(wanted ? wanted->value : "");
  std::vector<Port> selected;
  for (const auto& port : ports(c))
    if (port.active() && (list.entries.empty() || list.selects(port.device, port.number)))
      selected.push_back(port);
  return selected;
}

}  // namespace beeline::doctor
