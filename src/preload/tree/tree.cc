#include "preload/tree/tree.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "preload/tree/owner.h"

namespace beeline::preload {
namespace {

namespace fs = std::filesystem;

// Writes below one directory; the first failure is kept, and everything after it does nothing.
class Writer {
 public:
  explicit Writer(fs::path root) : root_(std::move(root)) {}

  void file(const fs::path& path, const std::string& text) {
    if (!make_parent(path)) return;
    std::ofstream out(root_ / path);
    out << text << '\n';
    out.close();
    if (!out) keep(std::error_code(errno, std::generic_category()));
    if (!failed_) fs::permissions(root_ / path, fs::perms(0444), error_), keep(error_);
  }
  void link(const fs::path& path, const fs::path& target) {
    if (!make_parent(path)) return;
    fs::create_symlink(target, root_ / path, error_);
    keep(error_);
  }
  void directory(const fs::path& path) { make_parent(path / "x"); }
  bool has(const fs::path& path) const {
    return fs::symlink_status(root_ / path).type() != fs::file_type::not_found;
  }

  Result<void> result() const {
    if (failed_)
      return fail_errno(failed_.value(), fmt::format("files for RDMA programs in {}", root_.string()));
    return {};
  }

 private:
  bool make_parent(const fs::path& path) {
    if (failed_) return false;
    fs::create_directories((root_ / path).parent_path(), error_);
    keep(error_);
    return !failed_;
  }
  void keep(std::error_code error) {
    if (!failed_) failed_ = error;
  }

  fs::path root_;
  std::error_code error_, failed_;
};

std::string guid_text(std::uint64_t guid) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xFFFF, guid >> 16 & 0xFFFF,
                     guid & 0xFFFF);
}

// Documentation/ABI/stable/sysfs-class-infiniband has the formats.
void write_port(Writer& out, const fs::path& port, const nic::Device& device) {
  out.file(port / "state", device.active ? "4: ACTIVE" : "1: DOWN");
  out.file(port / "phys_state", device.active ? "5: LinkUp" : "3: Disabled");
  out.file(port / "rate", "2.5 Gb/sec (1X SDR)");  // as ibv_query_port: no rate is promised
  out.file(port / "lid", "0x0");
  out.file(port / "lid_mask_count", "0");
  out.file(port / "sm_lid", "0x0");
  out.file(port / "sm_sl", "0");
  out.file(port / "cap_mask", "0x04010000");  // connection management, GIDs made of IP addresses
  out.file(port / "link_layer", "Ethernet");
  out.file(port / "pkeys/0", "0xffff");
  for (std::size_t i = 0; i < device.gids.size(); ++i) {
    const std::string index = std::to_string(i);
    out.file(port / "gids" / index, gid_string(device.gids[i]));
    out.file(port / "gid_attrs/types" / index, "RoCE v2");
    out.file(port / "gid_attrs/ndevs" / index, device.interface.name);
  }
}

void write_device(Writer& out, const nic::Device& device) {
  const fs::path parent = fs::path("sys/devices/virtual/beeline") / device.name;
  const fs::path self = parent / "infiniband" / device.name;
  out.file(self / "node_type", "1: CA");
  out.file(self / "node_guid", guid_text(device.guid));
  out.file(self / "sys_image_guid", guid_text(device.guid));
  out.file(self / "node_desc", device.name);
  out.file(self / "fw_ver", "beeline-0.1");
  out.file(self / "hw_rev", "0x1");
  out.file(self / "hca_type", "beeline");
  out.file(self / "board_id", "beeline");
  out.link(self / "device", fs::path("../../../") / device.name);
  write_port(out, self / "ports/1", device);
  out.file(parent / "numa_node", "-1");
  out.link(parent / "net" / device.interface.name, fs::path("/sys/class/net") / device.interface.name);

  out.link(fs::path("sys/class/infiniband") / device.name,
           fs::path("../../devices/virtual/beeline") / device.name / "infiniband" / device.name);
  const fs::path verbs = fs::path("sys/class/infiniband_verbs") / device.name;
  out.file(verbs / "ibdev", device.name);
  out.file(verbs / "abi_version", "1");
  // Any character device that can be opened: programs look whether they may, and go no further.
  out.link(fs::path("dev/infiniband") / device.name, "/dev/null");
}

// What the machine has itself stays visible: a link for each entry that the card has no own for.
void link_machine(Writer& out, const fs::path& machine, const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(machine / directory, error), end; !error && entry != end;
       entry.increment(error))
    if (!out.has(directory / entry->path().filename()))
      out.link(directory / entry->path().filename(), machine / directory / entry->path().filename());
}

void write_all(Writer& out, std::span<const nic::Device> devices, const TreeOptions& options) {
  for (const char* directory :
       {"sys/class/infiniband", "sys/class/infiniband_verbs", "sys/class/infiniband_mad",
        "sys/class/infiniband_cm", "sys/devices/virtual/beeline", "dev/infiniband"})
    out.directory(directory);
  for (const nic::Device& device : devices) write_device(out, device);
  if (options.provider != Provider::soft) {
    for (const char* directory :
         {"sys/class/infiniband", "sys/class/infiniband_verbs", "sys/class/infiniband_mad",
          "sys/class/infiniband_cm", "sys/class/misc/rdma_cm", "dev/infiniband"})
      link_machine(out, options.machine, directory);
  }
  const std::pair<const char*, const char*> versions[] = {{"sys/class/infiniband_verbs/abi_version", "6"},
                                                          {"sys/class/infiniband_mad/abi_version", "5"},
                                                          {"sys/class/misc/rdma_cm/abi_version", "4"}};
  for (const auto& [path, version] : versions)
    if (!out.has(path)) out.file(path, version);
  // The hooks know by this target that the connection manager is the emulated one.
  if (!out.has("dev/infiniband/rdma_cm")) out.link("dev/infiniband/rdma_cm", "/dev/null");
}

}  // namespace

Result<Tree> Tree::make(std::span<const nic::Device> devices, const TreeOptions& options) {
  const auto self = this_process_as_owner();
  if (!self) return fail(Errc::io, "/proc/self/stat cannot be read: is /proc mounted?");
  std::string path = (options.where / directory_name(*self)).string();
  if (::mkdtemp(path.data()) == nullptr)
    return fail_errno(errno, fmt::format("a directory for RDMA programs in {}", options.where.string()));
  Tree tree(path);
  Writer writer(path);
  write_all(writer, devices, options);
  BEELINE_TRY_VOID(writer.result());
  return tree;
}

Tree::~Tree() {
  std::error_code ignored;
  if (!path_.empty() && !has_users(path_.native())) fs::remove_all(path_, ignored);
}

int sweep_trees(const fs::path& where) {
  const auto self = this_process_as_owner();
  if (!self) return 0;
  int swept = 0;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(where, error), end; !error && entry != end; entry.increment(error)) {
    const auto owner = parse_directory_name(entry->path().filename().string());
    struct stat status {};
    if (!owner || may_be_alive(*owner, *self) || ::lstat(entry->path().c_str(), &status) != 0 ||
        !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || has_users(entry->path().native()))
      continue;
    fs::remove_all(entry->path(), ignored);
    ++swept;
  }
  return swept;
}

}  // namespace beeline::preload
