#include "port/udp/receive_batch.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace beeline::port {
namespace {

constexpr int ecn_mask = 3, ecn_ce = 3;  // RFC 3168, 5: the low bits of ToS or traffic class

// What the kernel says of a message beside its bytes.
struct Remarks {
  IpMarks marks;
  std::uint16_t segment_bytes = 0;

  bool congestion_experienced() const { return (marks.traffic_class & ecn_mask) == ecn_ce; }
};

int number_in(const cmsghdr* item) {
  int value = 0;
  std::memcpy(&value, CMSG_DATA(item), sizeof value);
  return value;
}

Remarks remarks_of(msghdr& header) {
  Remarks remarks;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_TOS)  // one byte, in contrast to the others
      remarks.marks.traffic_class = *CMSG_DATA(item);
    else if (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_TCLASS)
      remarks.marks.traffic_class = static_cast<std::uint8_t>(number_in(item));
    else if ((item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_TTL) ||
             (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_HOPLIMIT))
      remarks.marks.hop_limit = static_cast<std::uint8_t>(number_in(item));
    else if (item->cmsg_level == IPPROTO_UDP && item->cmsg_type == UDP_GRO)
      remarks.segment_bytes = static_cast<std::uint16_t>(number_in(item));
  }
  return remarks;
}

// The largest UDP payload, and the IP and UDP header that a raw socket shows before it.
constexpr std::size_t message_bytes_max = 65'536;
// Not a power of two, lest the beginnings of all buffers share a few places of the cache.
constexpr std::size_t stride = message_bytes_max + std::size_t{33} * 64;
constexpr std::size_t bytes_at_once = std::size_t{256} * 1024;

// An empty message is one datagram, too.
std::size_t count_segments(std::size_t bytes, std::size_t segment_bytes) {
  return segment_bytes == 0 || bytes <= segment_bytes ? 1 : (bytes + segment_bytes - 1) / segment_bytes;
}

}  // namespace

std::size_t ReceiveBatch::Datagram::segments() const { return count_segments(bytes.size(), segment_bytes); }

MutableBytes ReceiveBatch::Datagram::segment(std::size_t index) const {
  if (segments() == 1) return bytes;
  const std::size_t begin = index * segment_bytes;
  return bytes.subspan(begin, std::min<std::size_t>(segment_bytes, bytes.size() - begin));
}

ReceiveBatch::ReceiveBatch(std::size_t messages)
    : buffers_(new std::byte[messages * stride]),  // not touched
      pieces_(messages),
      names_(messages),
      controls_(messages),
      headers_(messages) {
  for (std::size_t i = 0; i < messages; ++i) {
    pieces_[i] = {buffer(i).data(), message_bytes_max};
    msghdr& header = headers_[i].msg_hdr;
    header.msg_iov = &pieces_[i];
    header.msg_iovlen = 1;
    header.msg_name = &names_[i];
    header.msg_control = &controls_[i];
  }
  written_ = messages;  // nothing is set yet
}

MutableBytes ReceiveBatch::buffer(std::size_t index) const {
  return {buffers_.get() + index * stride, message_bytes_max};
}

std::size_t ReceiveBatch::limit_for(std::size_t wanted) const {
  if (wanted == 0) return 0;
  const std::size_t by_count = wanted / typical_segments_;
  const std::size_t by_bytes = bytes_at_once / std::max<std::size_t>(1, typical_bytes_);
  return std::min(room(), std::max<std::size_t>(1, std::min(by_count, by_bytes)));
}

void ReceiveBatch::note_sizes(Range range) {
  if (range.count == 0) return;
  std::size_t bytes = 0, segments = 0;
  for (std::size_t i = range.first; i < range.first + range.count; ++i) {
    bytes += headers_[i].msg_len;
    segments += count_segments(headers_[i].msg_len, remarks_of(headers_[i].msg_hdr).segment_bytes);
  }
  typical_bytes_ = bytes / range.count;
  typical_segments_ = (segments + range.count - 1) / range.count;
}

ReceiveBatch::Range ReceiveBatch::receive(int socket, std::size_t wanted) {
  const std::size_t limit = limit_for(wanted);
  if (limit == 0) return {};
  // The kernel overwrote these with what it delivered last time. Most calls find nothing to receive, so
  // only what was written is set again.
  const std::size_t overwritten = std::min(used_ + limit, written_);
  for (std::size_t i = used_; i < overwritten; ++i) {
    headers_[i].msg_hdr.msg_namelen = sizeof names_[i];
    headers_[i].msg_hdr.msg_controllen = sizeof controls_[i];
  }
  const int count =
      ::recvmmsg(socket, headers_.data() + used_, static_cast<unsigned>(limit), MSG_DONTWAIT, nullptr);
  const Range range{used_, count > 0 ? static_cast<std::size_t>(count) : 0};
  used_ += range.count;
  if (overwritten == written_) written_ = range.first;
  // And one more: a call that failed may have begun to write.
  written_ = std::max(written_, std::min(used_ + 1, headers_.size()));
  note_sizes(range);
  return range;
}

ReceiveBatch::Datagram ReceiveBatch::datagram(std::size_t index) const {
  mmsghdr& header = headers_[index];
  Datagram result;
  result.source = address_of(names_[index]);
  result.source_port = port_of(names_[index]);
  result.bytes = buffer(index).first(header.msg_len);
  const Remarks remarks = remarks_of(header.msg_hdr);
  result.congestion_experienced = remarks.congestion_experienced();
  result.marks = remarks.marks;
  result.segment_bytes = remarks.segment_bytes;
  result.truncated = (header.msg_hdr.msg_flags & MSG_TRUNC) != 0;
  return result;
}

}  // namespace beeline::port
