#include "proto/ops/fragment.h"

namespace beeline::proto {

Fragment fragment_of(const wire::PacketView& packet) {
  const wire::OpcodeInfo& row = *packet.info;
  Fragment fragment;
  fragment.is_write = row.kind == wire::Kind::write;
  fragment.first = row.starts_message();
  fragment.last = row.ends_message();
  fragment.has_immediate = row.has_immediate;
  fragment.solicited = packet.headers.bth.solicited;
  fragment.immediate = packet.headers.immediate;
  fragment.invalidates = row.has_ieth;
  fragment.invalidate = packet.headers.invalidate;
  fragment.remote_address = packet.headers.reth.address;
  fragment.rkey = packet.headers.reth.rkey;
  fragment.length = packet.headers.reth.length;
  fragment.payload = packet.payload;
  return fragment;
}

}  // namespace beeline::proto
