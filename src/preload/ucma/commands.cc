// The commands: each checks what it is given, acts on an identifier, and answers.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "base/check.h"
#include "preload/ucma/host.h"
#include "preload/ucma/qp_attributes.h"
#include "preload/ucma/user_memory.h"

namespace beeline::preload::ucma {

using proto::cm::RejectReason;
using proto::cm::SidrStatus;

namespace {

constexpr std::uint32_t max_backlog = 1024;
constexpr std::uint8_t path_life_time = proto::cm::packet_life_time;

Bytes data_of(const std::uint8_t* data, std::uint8_t bytes) { return std::as_bytes(std::span(data, bytes)); }

// What the manager refuses is a state that does not allow it, or too long.
int error_of(const Result<void>& result) {
  if (result) return 0;
  return result.error().code == Errc::resource_exhausted ? -ENOMEM : -EINVAL;
}

template <class Body>
constexpr std::size_t bytes_of = sizeof(Body);

}  // namespace

struct Host::Row {
  std::size_t body_bytes;  // at least
  Command run;
};

const Host::Row* Host::row_of(std::uint32_t command) {
  static constexpr Row rows[] = {
      {bytes_of<rdma_ucm_create_id>, &Host::create_id},
      {bytes_of<rdma_ucm_destroy_id>, &Host::destroy_id},
      {bytes_of<rdma_ucm_bind_ip>, &Host::bind_ip},
      {bytes_of<rdma_ucm_resolve_ip>, &Host::resolve_ip},
      {bytes_of<rdma_ucm_resolve_route>, &Host::resolve_route},
      {bytes_of<rdma_ucm_query>, &Host::query_route},
      {offsetof(rdma_ucm_connect, ece), &Host::connect},
      {bytes_of<rdma_ucm_listen>, &Host::listen},
      {offsetof(rdma_ucm_accept, ece), &Host::accept},
      {bytes_of<rdma_ucm_reject>, &Host::reject},
      {bytes_of<rdma_ucm_disconnect>, &Host::disconnect},
      {bytes_of<rdma_ucm_init_qp_attr>, &Host::init_qp_attr},
      {bytes_of<rdma_ucm_get_event>, &Host::get_event},
      {0, &Host::not_offered},  // GET_OPTION: the kernel has none either
      {bytes_of<rdma_ucm_set_option>, &Host::set_option},
      {bytes_of<rdma_ucm_notify>, &Host::notify},
      {0, &Host::not_offered},  // JOIN_IP_MCAST
      {0, &Host::not_offered},  // LEAVE_MCAST
      {bytes_of<rdma_ucm_migrate_id>, &Host::migrate_id},
      {0, &Host::not_offered},  // QUERY: only asked for AF_IB
      {bytes_of<rdma_ucm_bind>, &Host::bind_any},
      {bytes_of<rdma_ucm_resolve_addr>, &Host::resolve_any},
      {0, &Host::not_offered},  // JOIN_MCAST
  };
  static_assert(std::size(rows) == RDMA_USER_CM_CMD_JOIN_MCAST + 1);
  return command < std::size(rows) ? &rows[command] : nullptr;
}

int Host::execute(File& file, Bytes bytes) {
  if (bytes.size() < sizeof(rdma_ucm_cmd_hdr)) return -EINVAL;
  const auto header = body_of<rdma_ucm_cmd_hdr>(bytes);
  const Bytes in = bytes.subspan(sizeof header);
  const Row* row = row_of(header.cmd);
  if (row == nullptr || header.in > in.size() || header.in < row->body_bytes) return -EINVAL;
  return (this->*row->run)(file, in.first(header.in), header.out);
}

int Host::not_offered(File&, Bytes, std::uint16_t) { return -ENOSYS; }

int Host::bind_ip(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_bind_ip>(in);
  const auto source = endpoint_of(std::as_bytes(std::span(&body.addr, 1)));
  return source ? bind(file, body.id, *source) : -EINVAL;
}

int Host::bind_any(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_bind>(in);
  if (body.addr_size > sizeof body.addr) return -EINVAL;
  const auto source = endpoint_of(std::as_bytes(std::span(&body.addr, 1)).first(body.addr_size));
  return source ? bind(file, body.id, *source) : -EAFNOSUPPORT;
}

int Host::resolve_ip(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_resolve_ip>(in);
  const auto source = endpoint_of(std::as_bytes(std::span(&body.src_addr, 1)));
  const auto destination = endpoint_of(std::as_bytes(std::span(&body.dst_addr, 1)));
  if (!destination || (!source && body.src_addr.sin6_family != AF_UNSPEC)) return -EINVAL;
  return resolve(file, body.id, source, *destination);
}

int Host::resolve_any(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_resolve_addr>(in);
  if (body.src_size > sizeof body.src_addr || body.dst_size > sizeof body.dst_addr) return -EINVAL;
  const auto source = endpoint_of(std::as_bytes(std::span(&body.src_addr, 1)).first(body.src_size));
  const auto destination = endpoint_of(std::as_bytes(std::span(&body.dst_addr, 1)).first(body.dst_size));
  if (!destination || (!source && body.src_size != 0)) return -EAFNOSUPPORT;
  return resolve(file, body.id, source, *destination);
}

int Host::resolve_route(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_resolve_route>(in);
  const std::lock_guard lock(mutex_);
  int error = 0;
  Identifier* identifier = find(file, body.id, error);
  if (identifier == nullptr) return error;
  if (identifier->stage != Stage::address_resolved) return -EINVAL;
  identifier->stage = Stage::route_resolved;
  post(*identifier, EventType::route_resolved);
  return 0;
}

int Host::query_route(File& file, Bytes in, std::uint16_t out_bytes) {
  const auto body = body_of<rdma_ucm_query>(in);
  rdma_ucm_query_route_resp response{};
  {
    const std::lock_guard lock(mutex_);
    int error = 0;
    const Identifier* identifier = find(file, body.id, error);
    if (identifier == nullptr) return error;
    store(identifier->source, response.src_addr);
    store(identifier->destination, response.dst_addr);
    if (identifier->shows_device()) {
      const nic::Device device = card_.device(identifier->place->device);
      response.node_guid = __builtin_bswap64(device.guid);
      response.ibdev_index = static_cast<std::uint32_t>(identifier->place->device);
      response.port_num = 1;
      if (identifier->stage != Stage::bound && identifier->destination.family != AF_UNSPEC) {
        ib_user_path_rec& path = response.ib_route[0];
        response.num_paths = 1;
        std::memcpy(path.dgid, identifier->destination.address.bytes.data(), sizeof path.dgid);
        std::memcpy(path.sgid, identifier->source.address.bytes.data(), sizeof path.sgid);
        path.pkey = 0xFFFF;
        path.mtu = path_mtu_of(*identifier->place);
        path.hop_limit = 64;
        path.traffic_class = identifier->type_of_service;
        path.reversible = 1;
        path.mtu_selector = path.rate_selector = path.packet_life_time_selector = 2;  // exactly
        path.packet_life_time = path_life_time;
      }
    }
  }
  return answer(body.response, out_bytes, response, offsetof(rdma_ucm_query_route_resp, ibdev_index));
}

// --- connections ---

proto::cm::LocalEnd Host::local_end_of(const Identifier& identifier, const rdma_ucm_conn_param& param) const {
  proto::cm::LocalEnd end = identifier.local_end;
  end.guid = card_.device(identifier.place->device).guid;
  end.qpn = Qpn{param.qp_num & 0xFF'FFFF};
  end.qkey = 0;
  end.responder_resources = param.responder_resources;
  end.initiator_depth = param.initiator_depth;
  end.retry_count = std::min<std::uint8_t>(param.retry_count, 7);
  end.rnr_retry_count = std::min<std::uint8_t>(param.rnr_retry_count, 7);
  end.flow_control = param.flow_control != 0;
  end.srq = param.srq != 0;
  return end;
}

std::uint8_t Host::path_mtu_of(const DevicePlace& place) const {
  const std::uint32_t bytes = card_.device(place.device).active_mtu_bytes;
  std::uint8_t value = IBV_MTU_256;
  while (value < IBV_MTU_4096 && (128u << (value + 1)) <= bytes) ++value;
  return value;
}

proto::cm::ConnectRequest Host::request_of(const Identifier& identifier) const {
  proto::cm::ConnectRequest request;
  request.local = identifier.source.address;
  request.remote = identifier.destination.address;
  request.source_port = identifier.source.port;
  request.service_id = identifier.service_id(identifier.destination.port);
  request.end = identifier.local_end;
  request.path_mtu = path_mtu_of(*identifier.place);
  request.traffic_class = identifier.type_of_service;
  if (identifier.offer == proto::cm::Offer::unreliable) request.transport = wire::cm::Transport::uc;
  if (identifier.ack_timeout != 0) request.life_time = static_cast<std::uint8_t>(identifier.ack_timeout - 1);
  return request;
}

int Host::connect(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_connect>(in);
  if (body.conn_param.valid == 0) return -EINVAL;
  {
    const std::lock_guard lock(mutex_);
    int error = 0;
    Identifier* identifier = find(file, body.id, error);
    if (identifier == nullptr) return error;
    if (identifier->stage != Stage::route_resolved || !identifier->place) return -EINVAL;
    identifier->local_end = local_end_of(*identifier, body.conn_param);
    const proto::cm::ConnectRequest request = request_of(*identifier);
    const Bytes data = data_of(body.conn_param.private_data, body.conn_param.private_data_len);
    const auto connection = identifier->is_datagram() ? manager_.resolve_service(card_.now(), request, data)
                                                      : manager_.connect(card_.now(), request, data);
    if (!connection) return connection.error().code == Errc::resource_exhausted ? -ENOMEM : -EINVAL;
    identifier->connection = *connection;
    identifier->remote_end.path_mtu = request.path_mtu;
    identifier->remote_end.initiator_depth = body.conn_param.responder_resources;  // until the peer says
    identifier->stage = Stage::connecting;
    of_connection_[*connection] = identifier->number;
  }
  card_.serve_management();
  return 0;
}

int Host::listen(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_listen>(in);
  bool unbound = false;
  {
    const std::lock_guard lock(mutex_);
    int error = 0;
    const Identifier* identifier = find(file, body.id, error);
    if (identifier == nullptr) return error;
    unbound = identifier->stage == Stage::idle;
  }
  if (unbound) {  // as the kernel: any address, any port
    Endpoint any;
    any.family = AF_INET;
    any.address = IpAddress::v4(0, 0, 0, 0);
    if (const int error = bind(file, body.id, any); error != 0) return error;
  }
  const std::lock_guard lock(mutex_);
  int error = 0;
  Identifier* identifier = find(file, body.id, error);
  if (identifier == nullptr) return error;
  if (identifier->stage != Stage::bound || identifier->reservation == nullptr) return -EINVAL;
  const std::uint32_t backlog = body.backlog > 0 && body.backlog < max_backlog ? body.backlog : max_backlog;
  const auto listener = manager_.listen(
      identifier->service_id(identifier->source.port),
      identifier->source.is_wildcard() ? std::nullopt : std::optional(identifier->source.address), backlog,
      identifier->offer);
  if (!listener) return -EADDRINUSE;
  if (!identifier->reservation->serve()) {
    manager_.unlisten(*listener);
    return -EADDRINUSE;
  }
  identifier->listener = *listener;
  identifier->stage = Stage::listening;
  of_listener_[*listener] = identifier->number;
  return 0;
}

int Host::accept(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_accept>(in);
  {
    const std::lock_guard lock(mutex_);
    int error = 0;
    Identifier* identifier = find(file, body.id, error);
    if (identifier == nullptr) return error;
    if (!identifier->connection || identifier->stage != Stage::connecting) return -EINVAL;
    const auto& param = body.conn_param;
    const Bytes data =
        data_of(param.private_data, param.valid != 0 ? param.private_data_len : std::uint8_t{0});
    if (!identifier->passive) {
      error = error_of(manager_.ready(card_.now(), *identifier->connection, data));
    } else if (param.valid == 0) {
      return -EINVAL;
    } else if (identifier->is_datagram()) {
      const std::uint32_t qkey = param.qkey != 0 ? param.qkey : wire::cm::udp_qkey;
      error = error_of(manager_.answer_service(card_.now(), *identifier->connection, SidrStatus::success,
                                               Qpn{param.qp_num & 0xFF'FFFF}, qkey, data));
    } else {
      const proto::cm::LocalEnd end = local_end_of(*identifier, param);
      error = error_of(manager_.reply(card_.now(), *identifier->connection, end, data));
      if (error == 0) identifier->local_end = end;
    }
    if (error != 0) return error;
    if (identifier->passive) identifier->uid = body.uid;
    identifier->owner = 0;
    identifier->stage = Stage::connected;
  }
  card_.serve_management();
  return 0;
}

int Host::reject(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_reject>(in);
  constexpr std::uint8_t consumer = static_cast<std::uint8_t>(RejectReason::consumer);
  constexpr std::uint8_t vendor_option = 35;
  const std::uint8_t reason = body.reason == 0 ? consumer : body.reason;
  if (reason != consumer && reason != vendor_option) return -EINVAL;
  {
    const std::lock_guard lock(mutex_);
    int error = 0;
    Identifier* identifier = find(file, body.id, error);
    if (identifier == nullptr) return error;
    if (!identifier->connection) return -EINVAL;
    const Bytes data = data_of(body.private_data, body.private_data_len);
    error = identifier->is_datagram() ? error_of(manager_.answer_service(card_.now(), *identifier->connection,
                                                                         SidrStatus::reject, {}, 0, data))
                                      : error_of(manager_.reject(card_.now(), *identifier->connection,
                                                                 static_cast<RejectReason>(reason), data));
    if (error != 0) return error;
  }
  card_.serve_management();
  return 0;
}

int Host::disconnect(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_disconnect>(in);
  {
    const std::lock_guard lock(mutex_);
    int error = 0;
    const Identifier* identifier = find(file, body.id, error);
    if (identifier == nullptr) return error;
    if (!identifier->connection || identifier->is_datagram()) return -EINVAL;
    (void)manager_.disconnect(card_.now(), *identifier->connection);  // ended already: as good
  }
  card_.serve_management();
  return 0;
}

int Host::init_qp_attr(File& file, Bytes in, std::uint16_t out_bytes) {
  const auto body = body_of<rdma_ucm_init_qp_attr>(in);
  if (body.qp_state > IBV_QPS_ERR) return -EINVAL;
  std::optional<ib_uverbs_qp_attr> attributes;
  {
    const std::lock_guard lock(mutex_);
    int error = 0;
    const Identifier* identifier = find(file, body.id, error);
    if (identifier == nullptr) return error;
    attributes = qp_attributes(*identifier, body.qp_state);
  }
  return attributes ? answer(body.response, out_bytes, *attributes) : -EINVAL;
}

int Host::notify(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_notify>(in);
  const std::lock_guard lock(mutex_);
  int error = 0;
  const Identifier* identifier = find(file, body.id, error);
  if (identifier == nullptr) return error;
  if (!identifier->connection || body.event != IBV_EVENT_COMM_EST) return -EINVAL;
  (void)manager_.note_traffic(card_.now(), *identifier->connection);  // the RTU may have been quicker
  distribute();
  return 0;
}

// --- the rest ---

int Host::get_event(File& file, Bytes in, std::uint16_t out_bytes) {
  const auto body = body_of<rdma_ucm_get_event>(in);
  constexpr std::size_t needed = offsetof(rdma_ucm_event_resp, reserved);
  if (out_bytes < needed) return -ENOSPC;
  const std::lock_guard lock(mutex_);
  const auto event = file.pop();
  if (!event) return -EAGAIN;
  if (const auto owner = identifiers_.find(event->counted_on); owner != identifiers_.end())
    ++owner->second->events_reported;
  if (event->response.event == static_cast<std::uint32_t>(EventType::connect_request))
    if (const auto asked = identifiers_.find(event->response.id); asked != identifiers_.end())
      manager_.note_seen(asked->second->connection.value_or(proto::cm::CommId{}));
  return answer(body.response, out_bytes, event->response, needed);
}

int Host::set_option(File& file, Bytes in, std::uint16_t) {
  const auto body = body_of<rdma_ucm_set_option>(in);
  std::int32_t value = 0;
  if (body.optlen != 1 && body.optlen != sizeof value) return -EINVAL;
  const auto* from = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(body.optval));
  if (!nic::copy_guarded(reinterpret_cast<std::byte*>(&value), from, body.optlen)) return -EFAULT;
  const std::lock_guard lock(mutex_);
  int error = 0;
  Identifier* identifier = find(file, body.id, error);
  if (identifier == nullptr) return error;
  if (body.level != RDMA_OPTION_ID) return -ENOSYS;
  const bool is_byte = body.optname == RDMA_OPTION_ID_TOS || body.optname == RDMA_OPTION_ID_ACK_TIMEOUT;
  if ((body.optlen == 1) != is_byte) return -EINVAL;
  switch (body.optname) {
    case RDMA_OPTION_ID_TOS:
      identifier->type_of_service = static_cast<std::uint8_t>(value);
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (identifier->stage != Stage::idle) return -EINVAL;
      identifier->reuse_address = value != 0;
      return 0;
    case RDMA_OPTION_ID_AFONLY:
      if (identifier->stage != Stage::idle) return -EINVAL;
      identifier->one_family = value != 0;
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (value < 0 || value > 31 || identifier->is_datagram()) return -EINVAL;
      identifier->ack_timeout = static_cast<std::uint8_t>(value);
      return 0;
    default:
      return -ENOSYS;
  }
}

// `file` is the new one, the body names a descriptor of the old.
int Host::migrate_id(File& file, Bytes in, std::uint16_t out_bytes) {
  const auto body = body_of<rdma_ucm_migrate_id>(in);
  if (out_bytes < sizeof(rdma_ucm_migrate_resp)) return -ENOSPC;
  const auto old = file_of_ ? file_of_(static_cast<int>(body.fd)) : nullptr;
  if (old == nullptr) return -EINVAL;
  rdma_ucm_migrate_resp response{};
  {
    const std::lock_guard lock(mutex_);
    int error = 0;
    Identifier* identifier = find(*old, body.id, error);
    if (identifier == nullptr) return error;
    response.events_reported = identifier->events_reported;
    if (file.closed) return -EBADF;
    if (old.get() != &file) {
      for (const QueuedEvent& event :
           old->extract([&](const QueuedEvent& e) { return e.counted_on == identifier->number; })) {
        // A request goes with its listener.
        if (const auto child = identifiers_.find(event.response.id); child != identifiers_.end())
          child->second->file = &file;
        file.push(event);
      }
      identifier->file = &file;
    }
  }
  return answer(body.response, out_bytes, response);
}

}  // namespace beeline::preload::ucma
