#include "verbs/common/context_shell.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace beeline::verbs {
namespace {

// The part of struct ibv_port_attr that programs built against libibverbs 1.1 know.
constexpr std::size_t old_port_attr_bytes = 48;

int old_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* out) {
  ibv_port_attr attributes{};
  const int error = ContextShell::from(context)->ops().query_port(context, port, &attributes);
  if (error == 0) std::memcpy(out, &attributes, old_port_attr_bytes);
  return error;
}

int sized_query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out, std::size_t bytes) {
  ibv_port_attr attributes{};
  const int error = ContextShell::from(context)->ops().query_port(context, port, &attributes);
  if (error == 0) std::memcpy(out, &attributes, std::min(bytes, sizeof attributes));
  return error;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* out,
                    std::size_t bytes) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (bytes < sizeof out->orig_attr) return EINVAL;
  ibv_device_attr_ex attributes{};
  const int error = ContextShell::from(context)->ops().query_device(context, &attributes.orig_attr);
  if (error != 0) return error;
  attributes.phys_port_cnt_ex = attributes.orig_attr.phys_port_cnt;
  std::memset(out, 0, bytes);
  std::memcpy(out, &attributes, std::min(bytes, sizeof attributes));
  return 0;
}

ibv_mw* no_alloc_mw(ibv_pd*, ibv_mw_type) {
  errno = EOPNOTSUPP;
  return nullptr;
}
int no_bind_mw(ibv_qp*, ibv_mw*, ibv_mw_bind*) { return EOPNOTSUPP; }
int no_dealloc_mw(ibv_mw*) { return EOPNOTSUPP; }
int no_post_srq_recv(ibv_srq*, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  *bad_wr = wr;
  return EOPNOTSUPP;
}

}  // namespace

ContextShell::ContextShell(ibv_device* device, const ContextOps& ops) : ops_(&ops) {
  frame_.self = this;
  verbs_context& verbs = frame_.verbs;
  verbs.sz = sizeof verbs;
  verbs.query_port = sized_query_port;
  verbs.query_device_ex = query_device_ex;
  verbs.create_cq_ex = ops.create_cq_ex;
  verbs.create_qp_ex = ops.create_qp_ex;

  ibv_context& context = verbs.context;
  context.device = device;
  context.ops._compat_query_device = ops.query_device;
  context.ops._compat_query_port = old_query_port;
  context.ops.alloc_mw = ops.alloc_mw != nullptr ? ops.alloc_mw : no_alloc_mw;
  context.ops.bind_mw = ops.bind_mw != nullptr ? ops.bind_mw : no_bind_mw;
  context.ops.dealloc_mw = ops.dealloc_mw != nullptr ? ops.dealloc_mw : no_dealloc_mw;
  context.ops.post_srq_recv = ops.post_srq_recv != nullptr ? ops.post_srq_recv : no_post_srq_recv;
  context.ops.poll_cq = ops.poll_cq;
  context.ops.req_notify_cq = ops.req_notify_cq;
  context.ops.post_send = ops.post_send;
  context.ops.post_recv = ops.post_recv;
  context.cmd_fd = -1;
  context.async_fd = -1;
  context.num_comp_vectors = 1;  // programs take a remainder by it
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.mutex, nullptr);
}

ContextShell::~ContextShell() {
  if (cmd_fd_ >= 0) close(cmd_fd_);
  if (async_fd_ >= 0) close(async_fd_);
  pthread_mutex_destroy(&get()->mutex);
}

bool ContextShell::open() {
  get()->cmd_fd = cmd_fd_ = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (cmd_fd_ < 0) return false;
  get()->async_fd = async_fd_ = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  async_events_.use(async_fd_);
  return async_fd_ >= 0;
}

ContextShell* ContextShell::from(ibv_context* context) {
  constexpr std::size_t offset = offsetof(Frame, verbs) + offsetof(verbs_context, context);
  return reinterpret_cast<Frame*>(reinterpret_cast<std::byte*>(context) - offset)->self;
}

}  // namespace beeline::verbs
