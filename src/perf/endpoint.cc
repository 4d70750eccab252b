#include "perf/endpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/random.h"
#include "verbs/common/device_shell.h"

namespace beeline::perf {
namespace {

constexpr std::uint32_t wanted_receive_depth = 512;
// What perftest inlines in its latency tests.
constexpr std::uint32_t wanted_inline_bytes = 220;

}  // namespace

Result<OpenDevice> open_device(verbs::Provider& provider, const Options& options) {
  if (options.port < 1 || options.port > 255)
    return fail(Errc::invalid_argument, "-i {}: ports are 1 … 255", options.port);
  OpenDevice device;
  device.provider = &provider;
  device.port = static_cast<std::uint8_t>(options.port);
  BEELINE_TRY(device.context, verbs::open_device(provider, options.device, device.port));
  device.name = provider.get_device_name(device.context->device);
  ibv_device_attr attributes{};
  if (const int error = provider.query_device(device.context.get(), &attributes); error != 0)
    return fail_errno(error, fmt::format("querying {}", device.name));
  if (options.port > attributes.phys_port_cnt)
    return fail(Errc::invalid_argument, "-i {}: {} has {}", options.port, device.name,
                attributes.phys_port_cnt == 1 ? std::string("one port only, port 1")
                                              : fmt::format("ports 1 … {}", attributes.phys_port_cnt));
  ibv_port_attr port{};
  if (const int error = provider.query_port(device.context.get(), device.port, &port); error != 0)
    return fail_errno(error, fmt::format("port {} of {} (-i)", options.port, device.name));
  if (port.state != IBV_PORT_ACTIVE)
    return fail(Errc::not_found, "port {} of {} is down: bring its interface up", options.port, device.name);
  BEELINE_TRY(device.gid, verbs::choose_gid(provider, device.context.get(), device.port, options.gid_index));
  device.gid_given = options.gid_index.has_value();
  device.mtu_bytes = verbs::mtu_bytes(port.active_mtu);
  if (options.mtu_bytes != 0) {
    if (verbs::mtu_bytes(verbs::mtu_enum(options.mtu_bytes)) != options.mtu_bytes)
      return fail(Errc::invalid_argument, "-m {}: give 256, 512, 1024, 2048 or 4096", options.mtu_bytes);
    if (options.mtu_bytes > device.mtu_bytes)
      return fail(Errc::invalid_argument, "-m {}: {} has an active MTU of {}", options.mtu_bytes, device.name,
                  device.mtu_bytes);
    device.mtu_bytes = options.mtu_bytes;
  }
  device.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  device.reads = static_cast<std::uint32_t>(std::clamp(attributes.max_qp_rd_atom, 1, 16));
  device.initiator_reads = static_cast<std::uint32_t>(std::clamp(attributes.max_qp_init_rd_atom, 1, 16));
  device.max_cqe = attributes.max_cqe;
  device.max_depth = static_cast<std::uint32_t>(attributes.max_qp_wr);
  return device;
}

Result<Buffer> Buffer::allocate(std::size_t bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, fmt::format("allocating {} bytes", bytes));
  return Buffer(static_cast<std::byte*>(memory), bytes);
}

void Buffer::Unmap::operator()(std::byte* memory) const {
  if (memory != nullptr) munmap(memory, bytes);
}

Result<std::unique_ptr<Endpoint>> Endpoint::create(OpenDevice& device, const Plan& plan) {
  // The plan may be a stranger's wish.
  const std::uint64_t memory = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  if (plan.buffer_bytes() > memory / 2)
    return fail(Errc::resource_exhausted,
                "the test needs {} bytes of memory, more than half of this host's {}", plan.buffer_bytes(),
                memory);
  BEELINE_TRY(auto buffer, Buffer::allocate(plan.buffer_bytes()));
  std::unique_ptr<Endpoint> end(new Endpoint(device, plan, std::move(buffer)));
  verbs::Provider& provider = *device.provider;
  BEELINE_TRY(end->pd_, verbs::alloc_pd(provider, device.context.get()));
  BEELINE_TRY(end->region_, verbs::register_memory(
                                provider, end->pd_.get(), end->buffer_.data(), end->buffer_.size(),
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
  if (plan.tx_depth > device.max_depth)
    return fail(Errc::invalid_argument, "--tx-depth {}: {} has {}", plan.tx_depth, device.name,
                device.max_depth);
  // Receives are posted as they are taken: few are enough where the device has few completion entries.
  const std::uint64_t share = static_cast<std::uint64_t>(device.max_cqe) / plan.queue_pairs;
  end->receive_depth_ = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(share - std::min<std::uint64_t>(share, plan.tx_depth), 1,
                                std::min(wanted_receive_depth, device.max_depth)));
  const std::uint64_t entries = std::uint64_t{plan.queue_pairs} * (plan.tx_depth + end->receive_depth_);
  if (entries > static_cast<std::uint64_t>(device.max_cqe))
    return fail(Errc::invalid_argument, "-q {} with --tx-depth {} needs {} completion entries; {} has {}",
                plan.queue_pairs, plan.tx_depth, entries, device.name, device.max_cqe);
  BEELINE_TRY(end->cq_, verbs::create_cq(provider, device.context.get(), static_cast<int>(entries), nullptr));
  BEELINE_TRY_VOID(end->create_lanes());
  return end;
}

Result<void> Endpoint::create_lanes() {
  verbs::QpOptions options;
  options.send_depth = plan_.tx_depth;
  options.receive_depth = receive_depth_;
  options.inline_bytes = plan_.test->latency ? wanted_inline_bytes : 0;
  for (std::uint32_t i = 0; i < plan_.queue_pairs; ++i) {
    ibv_qp_cap granted{};
    auto qp = verbs::create_rc_qp(*device_.provider, pd_.get(), cq_.get(), cq_.get(), options, &granted);
    if (!qp && options.inline_bytes > 0) {  // not every device inlines that much
      options.inline_bytes = 0;
      qp = verbs::create_rc_qp(*device_.provider, pd_.get(), cq_.get(), cq_.get(), options, &granted);
    }
    if (!qp) return tl::unexpected(std::move(qp).error());
    // A device may grant more than what was asked for; only what was asked for is used.
    inline_bytes_ = std::min(options.inline_bytes, granted.max_inline_data);
    Lane lane;
    lane.qp = std::move(*qp);
    lane.source = buffer_.data() + std::size_t{2} * i * plan_.area_bytes();
    lane.sink = lane.source + plan_.area_bytes();
    lane.psn = static_cast<std::uint32_t>(secure_random()) & Psn::mask;
    lanes_.push_back(std::move(lane));
  }
  return {};
}

void Endpoint::match(const EndpointInfo& peer) {
  if (device_.gid_given) return;
  const auto better =
      verbs::choose_gid(*device_.provider, device_.context.get(), device_.port, std::nullopt, peer.gid);
  if (better) device_.gid = *better;
}

EndpointInfo Endpoint::info() const {
  EndpointInfo info;
  info.gid = device_.gid.gid;
  info.mtu_bytes = device_.mtu_bytes;
  info.reads = device_.reads;
  for (const Lane& lane : lanes_)
    info.queue_pairs.push_back({lane.qp->qp_num, lane.psn, region_->rkey,
                                reinterpret_cast<std::uint64_t>(lane.source),
                                reinterpret_cast<std::uint64_t>(lane.sink)});
  return info;
}

Result<void> Endpoint::connect(const EndpointInfo& peer) {
  if (peer.queue_pairs.size() != lanes_.size() || peer.mtu_bytes < 256 || peer.mtu_bytes > 4096 ||
      peer.reads < 1 || peer.reads > 255)
    return fail(Errc::protocol, "the peer described {} queue pairs, MTU {} and {} READs: nonsense",
                peer.queue_pairs.size(), peer.mtu_bytes, peer.reads);
  peer_ = peer;
  own_address_.emplace(device_.gid.gid);
  mtu_bytes_ = std::min(device_.mtu_bytes, peer.mtu_bytes);
  verbs::ConnectOptions options;
  options.port = device_.port;
  options.gid_index = device_.gid.index;
  // 1.1 s, eight times. A software card is a process: on a busy host it may wait longer for a processor than
  // perftest's default of 67 ms allows, and is not dead.
  options.timeout = 18;
  options.initiator_reads = static_cast<std::uint8_t>(device_.initiator_reads);
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].peer = peer.queue_pairs[i];
    const verbs::QpAddress local{lanes_[i].qp->qp_num, lanes_[i].psn, device_.gid.gid, device_.mtu_bytes,
                                 static_cast<std::uint8_t>(device_.reads)};
    const verbs::QpAddress remote{lanes_[i].peer.qpn, lanes_[i].peer.psn & Psn::mask, peer.gid,
                                  peer.mtu_bytes, static_cast<std::uint8_t>(peer.reads)};
    BEELINE_TRY_VOID(verbs::connect_rc(*device_.provider, lanes_[i].qp.get(), local, remote, options));
  }
  return {};
}

bool Endpoint::data_in_order() const {
  return device_.provider->query_qp_data_in_order(lanes_.front().qp.get(), IBV_WR_RDMA_WRITE, 0) == 1;
}

Error Endpoint::failed(std::size_t lane, std::string_view operation, ibv_wc_status status) const {
  Error error{Errc::io, fmt::format("{} on queue pair {} ({} QPN 0x{:06x} -> {} QPN 0x{:06x}) failed: {}",
                                    operation, lane, to_string(device_.gid.gid), lanes_[lane].qp->qp_num,
                                    to_string(peer_.gid), lanes_[lane].peer.qpn, verbs::describe(status))};
  if (const std::string loss = own_address_ ? own_address_->loss() : ""; !loss.empty())
    error.message += "; " + loss;
  return error;
}

}  // namespace beeline::perf
