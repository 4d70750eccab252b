#include "verbs/system/system_provider.h"

#include <dirent.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "verbs/common/reason.h"
#include "verbs/system/functions.h"
#include "verbs/system/quiet.h"

namespace beeline::verbs {
namespace system {
namespace {

bool has_entry(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(directory.c_str()), closedir);
  if (open == nullptr) return false;
  while (const dirent* entry = readdir(open.get()))
    if (entry->d_name[0] != '.') return true;
  return false;
}

// What lies behind errno when a device cannot be opened.
std::string why_not_opened(int error, const ibv_device& device) {
  if (error == EACCES || error == EPERM)
    return fmt::format("this user may not open /dev/infiniband/{}: see its owner and mode (ls -l)",
                       device.dev_name);
  if (error == ENOENT)
    return fmt::format(
        "/dev/infiniband/{} is missing: load ib_uverbs, and pass the device into the container",
        device.dev_name);
  return {};
}

// verbs_get_ctx_op of the header: the struct grows at its front, so its size tells what it has.
verbs_context* with_query_port(ibv_context* context) {
  verbs_context* verbs = verbs_get_ctx(context);
  constexpr std::size_t needed = sizeof(verbs_context) - offsetof(verbs_context, query_port);
  return verbs != nullptr && verbs->sz >= needed && verbs->query_port != nullptr ? verbs : nullptr;
}

}  // namespace

class SystemProvider final : public Provider {
 public:
  explicit SystemProvider(SystemOptions options) : options_(std::move(options)) {}

  const char* name() const override { return "system"; }

  ibv_device** get_device_list(int* count) override {
    int found = 0;
    ibv_device** list = list_devices(&found);
    if (count != nullptr) *count = found;
    return list;
  }
  void free_device_list(ibv_device** list) override {
    if (list != none_) calls().free_device_list(list);
  }
  const char* get_device_name(ibv_device* device) override { return calls().get_device_name(device); }
  __be64 get_device_guid(ibv_device* device) override { return calls().get_device_guid(device); }

  ibv_context* open_device(ibv_device* device) override {
    ibv_context* context = calls().open_device(device);
    if (context == nullptr) reason_.note(why_not_opened(errno, *device));
    return context;
  }
  int close_device(ibv_context* context) override { return calls().close_device(context); }
  int query_device(ibv_context* context, ibv_device_attr* out) override {
    return calls().query_device(context, out);
  }
  // As ___ibv_query_port of the header: the exported function knows only the start of the struct.
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) override {
    ibv_port_attr attributes{};
    verbs_context* verbs = with_query_port(context);
    const int error =
        verbs != nullptr
            ? verbs->query_port(context, port, &attributes, sizeof attributes)
            : calls().query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&attributes));
    if (error == 0) *out = attributes;
    return error;
  }
  int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                   ibv_gid_entry* out) override {
    return calls().query_gid_ex(context, port, index, out, 0, sizeof *out);
  }

  ibv_pd* alloc_pd(ibv_context* context) override { return calls().alloc_pd(context); }
  int dealloc_pd(ibv_pd* pd) override { return calls().dealloc_pd(pd); }

  // The macro ibv_reg_mr: optional rights go to the function that drops those a kernel lacks.
  ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) override {
    const bool optional = (access & IBV_ACCESS_OPTIONAL_RANGE) != 0;
    if (optional && calls().reg_mr_iova2 != nullptr)
      return calls().reg_mr_iova2(pd, address, bytes, reinterpret_cast<std::uintptr_t>(address),
                                  static_cast<unsigned>(access));
    return calls().reg_mr(pd, address, bytes, access & ~IBV_ACCESS_OPTIONAL_RANGE);
  }
  int dereg_mr(ibv_mr* mr) override { return calls().dereg_mr(mr); }

  ibv_comp_channel* create_comp_channel(ibv_context* context) override {
    return calls().create_comp_channel(context);
  }
  int destroy_comp_channel(ibv_comp_channel* channel) override {
    return calls().destroy_comp_channel(channel);
  }
  ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                    int vector) override {
    return calls().create_cq(context, cqe, cq_context, channel, vector);
  }
  int destroy_cq(ibv_cq* cq) override { return calls().destroy_cq(cq); }
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override {
    return calls().get_cq_event(channel, cq, cq_context);
  }
  void ack_cq_events(ibv_cq* cq, unsigned count) override { calls().ack_cq_events(cq, count); }

  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) override { return calls().create_qp(pd, attr); }
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override {
    return calls().modify_qp(qp, attr, mask);
  }
  int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) override {
    return calls().query_qp(qp, attr, mask, init);
  }
  int destroy_qp(ibv_qp* qp) override { return calls().destroy_qp(qp); }
  // A library that cannot be asked promises nothing.
  int query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, std::uint32_t flags) override {
    if (calls().query_qp_data_in_order == nullptr) return 0;
    return calls().query_qp_data_in_order(qp, op, flags);
  }

  std::string why() override { return reason_.take(); }

 private:
  const Functions& calls() const { return library_->functions(); }

  ibv_device** list_devices(int* found) {
    const std::lock_guard guard(lock_);
    if (library_ == nullptr) {
      if (!has_entry(options_.class_directory)) return none_;
      auto loaded = Library::load(options_.library);
      if (!loaded) {
        reason_.note(loaded.error().message);
        errno = ENOSYS;
        return nullptr;
      }
      library_ = std::move(*loaded);
      // Before anything is registered; kernels from 5.12 need nothing and are left alone.
      if (library_->functions().fork_init() != 0)
        logger()->debug("verbs: ibv_fork_init: {}", std::strerror(errno));
    }
    const Quiet quiet;
    ibv_device** list = calls().get_device_list(found);
    // ENOSYS: the kernel offers no verbs, so there is no device.
    return list == nullptr && errno == ENOSYS ? none_ : list;
  }

  const SystemOptions options_;
  std::mutex lock_;  // loading, listing
  std::unique_ptr<Library> library_;
  ibv_device* none_[1] = {nullptr};  // the empty list
  Reason reason_;
};

}  // namespace system

std::unique_ptr<Provider> make_system_provider(SystemOptions options) {
  return std::make_unique<system::SystemProvider>(std::move(options));
}

}  // namespace beeline::verbs
