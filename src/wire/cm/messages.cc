#include "wire/cm/messages.h"

#include <cstring>

#include "wire/cm/field_io.h"

namespace beeline::wire::cm {
namespace {

constexpr std::uint8_t base_version = 1, class_version = 2;
constexpr std::uint8_t communication_class = 0x07;
constexpr std::uint8_t method_send = 0x03;
constexpr std::uint16_t first_attribute = 0x0010;
constexpr std::size_t message_bytes = mad_bytes - mad_header_bytes;

// Where every field lies: one description for reading and for writing, offsets from behind the header.

template <class Io>
void lay_out(Io& io, std::size_t at, typename Io::template Ref<Path> path) {
  io.u16(at, path.local_lid);
  io.u16(at + 2, path.remote_lid);
  io.bytes(at + 4, path.local.bytes);
  io.bytes(at + 20, path.remote.bytes);
  io.bits(at + 36, 0, 20, path.flow_label);
  io.bits(at + 39, 2, 6, path.rate);
  io.u8(at + 40, path.traffic_class);
  io.u8(at + 41, path.hop_limit);
  io.bits(at + 42, 0, 4, path.service_level);
  io.bits(at + 42, 4, 1, path.subnet_local);
  io.bits(at + 43, 0, 5, path.ack_timeout);
}

template <class Io>
void lay_out(Io& io, typename Io::template Ref<Req> m) {
  io.u32(0, m.local_id.value);
  io.u64(8, m.service_id);
  io.u64(16, m.local_guid);
  io.u24(25, m.ece_vendor_id);
  io.u32(28, m.local_qkey);
  io.u24(32, m.local_qpn.value);
  io.u8(35, m.responder_resources);
  io.u24(36, m.local_eecn);
  io.u8(39, m.initiator_depth);
  io.u24(40, m.remote_eecn);
  io.bits(43, 0, 5, m.remote_response_timeout);
  io.bits(43, 5, 2, m.transport);
  io.bits(43, 7, 1, m.flow_control);
  io.u24(44, m.starting_psn.value);
  io.bits(47, 0, 5, m.local_response_timeout);
  io.bits(47, 5, 3, m.retry_count);
  io.u16(48, m.pkey);
  io.bits(50, 0, 4, m.path_mtu);
  io.bits(50, 4, 1, m.rdc_exists);
  io.bits(50, 5, 3, m.rnr_retry_count);
  io.bits(51, 0, 4, m.max_cm_retries);
  io.bits(51, 4, 1, m.srq);
  io.bits(51, 5, 3, m.extended_transport);
  lay_out(io, 52, m.primary);
  lay_out(io, 96, m.alternate);
  io.bytes(140, m.private_data);
}

template <class Io, class M>
void lay_out_ids(Io& io, M& m) {
  io.u32(0, m.local_id.value);
  io.u32(4, m.remote_id.value);
}

template <class Io>
void lay_out(Io& io, typename Io::template Ref<Mra> m) {
  lay_out_ids(io, m);
  io.bits(8, 0, 2, m.subject);
  io.bits(9, 0, 5, m.service_timeout);
  io.bytes(10, m.private_data);
}

template <class Io>
void lay_out(Io& io, typename Io::template Ref<Rej> m) {
  lay_out_ids(io, m);
  io.bits(8, 0, 2, m.subject);
  io.bits(9, 0, 7, m.info_bytes);
  io.u16(10, m.reason);
  io.bytes(12, m.info);
  io.bytes(84, m.private_data);
}

template <class Io>
void lay_out(Io& io, typename Io::template Ref<Rep> m) {
  lay_out_ids(io, m);
  io.u32(8, m.local_qkey);
  io.u24(12, m.local_qpn.value);
  io.u24(16, m.local_eecn);
  io.u24(20, m.starting_psn.value);
  io.u8(24, m.responder_resources);
  io.u8(25, m.initiator_depth);
  io.bits(26, 0, 5, m.target_ack_delay);
  io.bits(26, 5, 2, m.failover);
  io.bits(26, 7, 1, m.flow_control);
  io.bits(27, 0, 3, m.rnr_retry_count);
  io.bits(27, 3, 1, m.srq);
  io.u64(28, m.local_guid);
  io.bytes(36, m.private_data);
}

template <class Io>
void lay_out(Io& io, typename Io::template Ref<Rtu> m) {
  lay_out_ids(io, m);
  io.bytes(8, m.private_data);
}

template <class Io>
void lay_out(Io& io, typename Io::template Ref<Dreq> m) {
  lay_out_ids(io, m);
  io.u24(8, m.remote_qpn.value);
  io.bytes(12, m.private_data);
}

template <class Io>
void lay_out(Io& io, typename Io::template Ref<Drep> m) {
  lay_out_ids(io, m);
  io.bytes(8, m.private_data);
}

template <class Io>
void lay_out(Io& io, typename Io::template Ref<SidrReq> m) {
  io.u32(0, m.request_id.value);
  io.u16(4, m.pkey);
  io.u64(8, m.service_id);
  io.bytes(16, m.private_data);
}

template <class Io>
void lay_out(Io& io, typename Io::template Ref<SidrRep> m) {
  io.u32(0, m.request_id.value);
  io.u8(4, m.status);
  io.u8(5, m.info_bytes);
  io.u24(8, m.qpn.value);
  io.u64(12, m.service_id);
  io.u32(20, m.qkey);
  io.bytes(24, m.info);
  io.bytes(96, m.private_data);
}

using Body = std::span<const std::byte, message_bytes>;

template <class M>
Message read(Body body) {
  M message;
  FieldReader reader(body.data());
  lay_out(reader, message);
  return message;
}

using Read = Message (*)(Body);

template <class... M>
constexpr std::array<Read, sizeof...(M)> readers_of(std::variant<M...>*) {
  return {read<M>...};
}

constexpr auto readers = readers_of(static_cast<Message*>(nullptr));
constexpr std::array<std::string_view, readers.size()> names = {"REQ",  "MRA",  "REJ",      "REP",     "RTU",
                                                                "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"};

}  // namespace

std::string_view name(const Message& message) { return names[message.index()]; }

std::string_view name(MadError error) {
  constexpr std::array<std::string_view, 5> texts = {"bad length", "bad version", "other class", "bad method",
                                                     "unknown attribute"};
  return texts[static_cast<std::size_t>(error)];
}

tl::expected<Mad, MadError> parse(Bytes datagram) {
  if (datagram.size() != mad_bytes) return tl::unexpected(MadError::bad_length);
  const std::byte* p = datagram.data();
  if (load_u8(p) != base_version) return tl::unexpected(MadError::bad_version);
  if (load_u8(p + 1) != communication_class) return tl::unexpected(MadError::other_class);
  if (load_u8(p + 2) != class_version) return tl::unexpected(MadError::bad_version);
  if (load_u8(p + 3) != method_send) return tl::unexpected(MadError::bad_method);
  const std::size_t attribute = load_be16(p + 16);
  if (attribute < first_attribute || attribute - first_attribute >= readers.size())
    return tl::unexpected(MadError::unknown_attribute);
  Mad mad;
  mad.transaction = load_be64(p + 8);
  mad.attribute_modifier = load_be32(p + 20);
  mad.message = readers[attribute - first_attribute](datagram.subspan<mad_header_bytes, message_bytes>());
  return mad;
}

std::array<std::byte, mad_bytes> emit(const Mad& mad) {
  std::array<std::byte, mad_bytes> out{};
  std::byte* p = out.data();
  store_u8(p, base_version);
  store_u8(p + 1, communication_class);
  store_u8(p + 2, class_version);
  store_u8(p + 3, method_send);
  store_be64(p + 8, mad.transaction);
  store_be16(p + 16, static_cast<std::uint16_t>(first_attribute + mad.message.index()));
  store_be32(p + 20, mad.attribute_modifier);
  FieldWriter writer(p + mad_header_bytes);
  std::visit([&](const auto& message) { lay_out(writer, message); }, mad.message);
  return out;
}

}  // namespace beeline::wire::cm
