// Creation of verbs objects with owners and clear errors.

#include <sys/resource.h>

#include <cerrno>

#include "verbs/verbs.h"

namespace beeline::verbs {
namespace {

// ENOMEM from hardware usually means the limit on locked memory, which nobody guesses.
tl::unexpected<Error> fail_creating(int error, Provider& provider, ibv_context* context,
                                    std::string_view what) {
  auto failure = fail_errno(error, fmt::format("{} on {}", what, provider.get_device_name(context->device)));
  if (const std::string why = provider.why(); !why.empty()) failure.value().message += ": " + why;
  rlimit limit{};
  if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    failure.value().message +=
        fmt::format(" (this process may lock {} KiB of memory; hardware needs more: ulimit -l unlimited)",
                    limit.rlim_cur / 1024);
  return failure;
}

}  // namespace

Result<ProtectionDomain> alloc_pd(Provider& provider, ibv_context* context) {
  ibv_pd* pd = provider.alloc_pd(context);
  if (pd == nullptr) return fail_creating(errno, provider, context, "allocating a protection domain");
  return ProtectionDomain(pd, {&provider});
}

Result<MemoryRegion> register_memory(Provider& provider, ibv_pd* pd, void* address, std::size_t bytes,
                                     int access) {
  ibv_mr* mr = provider.reg_mr(pd, address, bytes, access);
  if (mr == nullptr)
    return fail_creating(errno, provider, pd->context, fmt::format("registering {} bytes", bytes));
  return MemoryRegion(mr, {&provider});
}

Result<CompletionChannel> create_channel(Provider& provider, ibv_context* context) {
  ibv_comp_channel* channel = provider.create_comp_channel(context);
  if (channel == nullptr) return fail_creating(errno, provider, context, "creating a completion channel");
  return CompletionChannel(channel, {&provider});
}

Result<CompletionQueue> create_cq(Provider& provider, ibv_context* context, int depth,
                                  ibv_comp_channel* channel) {
  ibv_cq* cq = provider.create_cq(context, depth, nullptr, channel, 0);
  if (cq == nullptr)
    return fail_creating(errno, provider, context, fmt::format("creating a completion queue of {}", depth));
  return CompletionQueue(cq, {&provider});
}

Result<QueuePair> create_rc_qp(Provider& provider, ibv_pd* pd, ibv_cq* send_cq, ibv_cq* receive_cq,
                               const QpOptions& options, ibv_qp_cap* granted) {
  ibv_qp_init_attr attr{};
  attr.send_cq = send_cq;
  attr.recv_cq = receive_cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {options.send_depth, options.receive_depth, options.send_sges, options.receive_sges,
              options.inline_bytes};
  ibv_qp* qp = provider.create_qp(pd, &attr);
  if (qp == nullptr)
    return fail_creating(
        errno, provider, pd->context,
        fmt::format("creating a queue pair (send queue {}, receive queue {}, inline {} bytes)",
                    options.send_depth, options.receive_depth, options.inline_bytes));
  if (granted != nullptr) *granted = attr.cap;
  return QueuePair(qp, {&provider});
}

}  // namespace beeline::verbs
