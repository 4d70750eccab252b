#include "exec/connections/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/random.h"

namespace beeline::exec {
namespace {

// A work request's id says whose it is: receives have the top bit, then the peer, then
// the receive slot, or the running number of the send.
constexpr std::uint64_t receive_flag = std::uint64_t{1} << 63;
constexpr std::uint64_t work_id(Rank peer, std::uint32_t low) {
  return std::uint64_t{static_cast<std::uint32_t>(peer.value)} << 32 | low;
}
constexpr Rank peer_of(std::uint64_t id) { return Rank{static_cast<int>((id & ~receive_flag) >> 32)}; }

// Patience of a connection: 4.096 us * 2^17 = 0.54 s per try, 7 retries: a dead path is given up
// after about 4.3 s, and a busy machine has more than half a second for each answer.
constexpr std::uint8_t ack_timeout = 17, ack_retries = 7;

constexpr int data_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

}  // namespace

Result<std::unique_ptr<Connections>> Connections::create(verbs::Provider& provider, ibv_context* context,
                                                         const verbs::GidChoice& gid, Rank rank, int size) {
  std::unique_ptr<Connections> connections(new Connections(provider, gid, rank, size));
  BEELINE_TRY_VOID(connections->create_objects(context));
  return connections;
}

Result<void> Connections::create_objects(ibv_context* context) {
  ibv_port_attr port{};
  if (const int error = provider_.query_port(context, 1, &port); error != 0)
    return fail_errno(error, "querying port 1");
  const std::uint32_t mtu_bytes = 128u << port.active_mtu;

  const int peer_count = static_cast<int>(peers_.size()) - 1;
  constexpr int depth = static_cast<int>(receive_depth + send_depth);
  BEELINE_TRY_VOID(check_room(context, depth, peer_count));
  BEELINE_TRY(pd_, verbs::alloc_pd(provider_, context));
  BEELINE_TRY(channel_, verbs::create_channel(provider_, context));
  if (fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0)
    return fail_errno(errno, "making the completion channel non-blocking");
  BEELINE_TRY(cq_, verbs::create_cq(provider_, context, depth * std::max(peer_count, 1), channel_.get()));
  if (peer_count == 0) return {};

  slots_.resize(slot_bytes_per_peer() * peers_.size());
  BEELINE_TRY(slots_region_, register_memory(slots_.data(), slots_.size(), IBV_ACCESS_LOCAL_WRITE));
  for (int peer = 0; peer <= peer_count; ++peer)
    if (Rank{peer} != rank_) {
      BEELINE_TRY_VOID(create_peer(Rank{peer}, mtu_bytes));
      BEELINE_TRY_VOID(create_mailbox(peers_[static_cast<std::size_t>(peer)]));
    }
  return {};
}

// One completion queue serves all peers, so its depth bounds the group on this device.
Result<void> Connections::check_room(ibv_context* context, int entries_per_peer, int peer_count) {
  ibv_device_attr limits{};
  if (const int error = provider_.query_device(context, &limits); error != 0)
    return fail_errno(
        error, fmt::format("querying the limits of device {}", provider_.get_device_name(context->device)));
  const int most = limits.max_cqe / entries_per_peer;
  if (peer_count <= most) return {};
  return fail(
      Errc::resource_exhausted,
      "a group of {} ranks is too large for device {}: its completion queues have at most {} entries, "
      "which is enough for {} ranks; use smaller groups or another device",
      peer_count + 1, provider_.get_device_name(context->device), limits.max_cqe, most + 1);
}

Result<void> Connections::create_peer(Rank rank, std::uint32_t mtu_bytes) {
  Peer& peer = peers_[index(rank)];
  ibv_qp_cap granted{};
  const auto create_qp = [&](std::uint32_t inline_bytes) {
    const verbs::QpOptions options{
        .send_depth = send_depth, .receive_depth = receive_depth, .inline_bytes = inline_bytes};
    return verbs::create_rc_qp(provider_, pd_.get(), cq_.get(), cq_.get(), options, &granted);
  };
  auto created = create_qp(inline_bytes_wanted);
  if (!created) created = create_qp(message_bytes);
  if (!created) created = create_qp(0);  // not every device takes data inline
  BEELINE_TRY(peer.qp, std::move(created));
  peer.inline_bytes = std::min(granted.max_inline_data, inline_bytes_wanted);
  peer.local = {.qpn = peer.qp->qp_num,
                .psn = static_cast<std::uint32_t>(secure_random() & 0xFFFFFF),
                .gid = gid_.gid,
                .mtu_bytes = mtu_bytes};
  peer.receive_slots = slots_.data() + index(rank) * slot_bytes_per_peer();
  peer.parcel_slots = peer.receive_slots + std::size_t{receive_depth} * receive_bytes_;
  peer.send_slots = peer.parcel_slots + std::size_t{parcels_in_flight} * receive_bytes_;
  peer.letter_places = peer.send_slots + std::size_t{send_depth} * message_bytes;
  peer.cookies.resize(send_depth);
  return {};
}

Result<void> Connections::connect(Rank rank, const verbs::QpAddress& remote) {
  Peer& peer = peers_[index(rank)];
  peer.remote = remote;
  verbs::ConnectOptions options;
  options.gid_index = gid_.index;
  options.timeout = ack_timeout;
  options.retry_count = ack_retries;
  options.rnr_retry = 6;  // not for ever: it cannot happen
  options.access = data_access;
  BEELINE_TRY_VOID(verbs::connect_rc(provider_, peer.qp.get(), peer.local, remote, options));
  for (std::uint32_t slot = 0; slot < receive_depth; ++slot) BEELINE_TRY_VOID(post_receive(rank, slot));
  return {};
}

std::string Connections::path(Rank rank) const {
  const Peer& peer = peers_[index(rank)];
  return fmt::format("GID {} -> {}", to_string(peer.local.gid), to_string(peer.remote.gid));
}

int Connections::ranks_here() const {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return peer.qp == nullptr || peer.remote.gid == gid_.gid;
  }));
}

Result<void> Connections::post_receive(Rank rank, std::uint32_t slot) {
  Peer& peer = peers_[index(rank)];
  ibv_sge sge{
      .addr = reinterpret_cast<std::uintptr_t>(peer.receive_slots + std::size_t{slot} * receive_bytes_),
      .length = receive_bytes_,
      .lkey = slots_region_->lkey};
  ibv_recv_wr request{}, *bad = nullptr;
  request.wr_id = receive_flag | work_id(rank, slot);
  request.sg_list = &sge;
  request.num_sge = 1;
  if (const int error = ibv_post_recv(peer.qp.get(), &request, &bad); error != 0)
    return fail_errno(error, fmt::format("posting a receive from rank {}", rank.value));
  return {};
}

Result<void> Connections::post(Rank rank, ibv_send_wr& request) {
  Peer& peer = peers_[index(rank)];
  request.wr_id = work_id(rank, peer.posted);
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(peer.qp.get(), &request, &bad); error != 0)
    return fail_errno(error, fmt::format("posting to rank {} ({})", rank.value, path(rank)));
  peer.unsignaled = (request.send_flags & IBV_SEND_SIGNALED) != 0 ? 0 : peer.unsignaled + 1;
  ++peer.posted;
  if (request.opcode != IBV_WR_RDMA_WRITE) peer.last_message = peer.posted;
  return {};
}

ibv_send_wr Connections::request_for(const Peer& peer, ibv_wr_opcode opcode, ibv_sge& sge) {
  ibv_send_wr request{};
  request.opcode = opcode;
  request.sg_list = &sge;
  request.num_sge = 1;
  if (sge.length <= peer.inline_bytes) request.send_flags |= IBV_SEND_INLINE;
  return request;
}

Result<void> Connections::send(Rank rank, const Message& message, bool signal) {
  Peer& peer = peers_[index(rank)];
  std::byte* const slot = peer.send_slots + (peer.posted % send_depth) * message_bytes;
  const MessageBuffer encoded = encode(message);
  std::memcpy(slot, encoded.data(), message_bytes);
  ibv_sge sge{
      .addr = reinterpret_cast<std::uintptr_t>(slot), .length = message_bytes, .lkey = slots_region_->lkey};
  ibv_send_wr request = request_for(peer, IBV_WR_SEND, sge);
  if (signal || peer.unsignaled + 1 >= signal_every) request.send_flags |= IBV_SEND_SIGNALED;
  return post(rank, request);
}

Result<void> Connections::write(Rank rank, const Write& write) {
  Peer& peer = peers_[index(rank)];
  ibv_sge sge{
      .addr = reinterpret_cast<std::uintptr_t>(write.from), .length = write.bytes, .lkey = write.lkey};
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.sg_list = &sge;
  request.num_sge = write.bytes == 0 ? 0 : 1;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = htonl(write.ticket);
  request.wr.rdma.remote_addr = write.remote_address;
  request.wr.rdma.rkey = write.rkey;
  peer.cookies[peer.posted % send_depth] = write.cookie;
  return post(rank, request);
}

std::byte* Connections::parcel_slot(Rank rank, std::uint32_t bytes) {
  const Peer& peer = peers_[index(rank)];
  // The card may have to send the slot's last parcel again until it is retired.
  const bool in_use = bytes > peer.inline_bytes && peer.parcels >= parcels_in_flight &&
                      !peer.is_retired(peer.parcel_numbers[peer.parcels % parcels_in_flight]);
  return has_room(rank) && !in_use ? next_parcel(peer, bytes) : nullptr;
}

Result<void> Connections::send_parcel(Rank rank, std::uint32_t bytes) {
  Peer& peer = peers_[index(rank)];
  ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(next_parcel(peer, bytes)),
              .length = bytes,
              .lkey = slots_region_->lkey};
  ibv_send_wr request = request_for(peer, IBV_WR_SEND, sge);
  const bool goes_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
  if (!goes_inline || peer.unsignaled + 1 >= signal_every) request.send_flags |= IBV_SEND_SIGNALED;
  BEELINE_TRY_VOID(post(rank, request));
  if (!goes_inline) peer.parcel_numbers[peer.parcels++ % parcels_in_flight] = peer.posted;
  return {};
}

int Connections::poll(Listener& listener) {
  std::array<ibv_wc, 32> completions;  // filled in by the call; clearing it would cost more
  const int count = ibv_poll_cq(cq_.get(), static_cast<int>(completions.size()), completions.data());
  if (count < 0) {
    listener.on_broken(rank_, {Errc::internal, "the completion queue overran"});
    return 1;
  }
  for (int i = 0; i < count; ++i) handle(completions[static_cast<std::size_t>(i)], listener);
  return count;
}

void Connections::handle(const ibv_wc& completion, Listener& listener) {
  const Rank peer = peer_of(completion.wr_id);
  if (completion.status != IBV_WC_SUCCESS)
    listener.on_broken(peer, broken(peer, completion));
  else if ((completion.wr_id & receive_flag) != 0)
    handle_receive(peer, completion, listener);
  else
    handle_send(peer, completion, listener);
}

// A parcel stays where it is. A message is copied and its slot posted again before it is acted upon: an
// answer to it may bring the next one.
void Connections::handle_receive(Rank peer, const ibv_wc& completion, Listener& listener) {
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  std::byte* const data = peers_[index(peer)].receive_slots + std::size_t{slot} * receive_bytes_;
  const bool is_data = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  if (!is_data && completion.byte_len >= message_bytes && is_parcel(data))
    return listener.on_parcel(peer, {data, completion.byte_len, slot});
  MessageBuffer buffer;
  std::memcpy(buffer.data(), data, message_bytes);
  if (auto posted = post_receive(peer, slot); !posted) return listener.on_broken(peer, posted.error());
  if (is_data) return listener.on_data(peer, ntohl(completion.imm_data), completion.byte_len);
  const auto message =
      completion.byte_len == message_bytes ? decode(buffer) : std::optional<Message>(std::nullopt);
  if (!message)
    return listener.on_broken(peer,
                              {Errc::protocol, fmt::format("rank {} sent a message of {} bytes that makes no "
                                                           "sense: do all ranks run the same version?",
                                                           peer.value, completion.byte_len)});
  listener.on_message(peer, *message);
}

void Connections::handle_send(Rank rank, const ibv_wc& completion, Listener& listener) {
  Peer& peer = peers_[index(rank)];
  const auto number = static_cast<std::uint32_t>(completion.wr_id);
  peer.retired = number + 1;
  if (completion.opcode != IBV_WC_RDMA_WRITE) return;
  if (const std::uint32_t cookie = peer.cookies[number % send_depth]; cookie != no_cookie)
    listener.on_written(rank, cookie);
}

Error Connections::broken(Rank peer, const ibv_wc& completion) const {
  const bool silence = completion.status == IBV_WC_RETRY_EXC_ERR || completion.status == IBV_WC_WR_FLUSH_ERR;
  return {silence ? Errc::peer_lost : Errc::io,
          fmt::format("the connection from rank {} to rank {} broke ({}): {}", rank_.value, peer.value,
                      path(peer), verbs::describe(completion.status))};
}

Result<void> Connections::arm() {
  if (const int error = ibv_req_notify_cq(cq_.get(), 0); error != 0)
    return fail_errno(error, "arming the completion queue");
  return {};
}

void Connections::drain() {
  ibv_cq* cq = nullptr;
  void* cookie = nullptr;
  unsigned events = 0;
  while (provider_.get_cq_event(channel_.get(), &cq, &cookie) == 0) ++events;
  if (events != 0) provider_.ack_cq_events(cq_.get(), events);
}

void Connections::break_all() {
  for (const Peer& peer : peers_) {
    if (peer.qp == nullptr) continue;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    provider_.modify_qp(peer.qp.get(), &attr, IBV_QP_STATE);  // cannot fail: ERR is allowed from every state
  }
}

}  // namespace beeline::exec
