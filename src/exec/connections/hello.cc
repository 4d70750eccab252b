#include "exec/connections/hello.h"

#include <algorithm>
#include <cstring>

#include "exec/limits.h"
#include "exec/message.h"

namespace beeline::exec {
namespace {

// "BEEX", and the version of everything that ranks of a group must have in common.
constexpr std::uint32_t magic = 0x42454558;
constexpr std::uint32_t version = 3;

// magic, version, message bytes, parcel bytes, lanes, adverts per lane, piece bytes, communicator, size,
// rank: 4 bytes each
constexpr std::size_t header_bytes = std::size_t{10} * 4;
// QPN, PSN, MTU, reads: 4 bytes each, GID
constexpr std::size_t address_bytes = 4 * 4 + 16;

class Writer {
 public:
  explicit Writer(std::size_t bytes) : out_(bytes) {}
  void u32(std::uint32_t value) {
    store_be32(out_.data() + at_, value);
    at_ += 4;
  }
  void raw(const void* from, std::size_t bytes) {
    std::memcpy(out_.data() + at_, from, bytes);
    at_ += bytes;
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
  std::size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(const std::byte* from) : from_(from) {}
  std::uint32_t u32() {
    const std::uint32_t value = load_be32(from_);
    from_ += 4;
    return value;
  }
  void raw(void* to, std::size_t bytes) {
    std::memcpy(to, from_, bytes);
    from_ += bytes;
  }

 private:
  const std::byte* from_;
};

bool plausible(const verbs::QpAddress& address) {
  const std::uint32_t mtu = address.mtu_bytes;
  return address.qpn > 1 && address.qpn <= 0xFFFFFF && address.psn <= 0xFFFFFF && !address.gid.is_zero() &&
         (mtu == 256 || mtu == 512 || mtu == 1024 || mtu == 2048 || mtu == 4096);
}

Result<void> agree(Rank from, const char* what, std::uint32_t theirs, std::uint32_t ours) {
  if (theirs == ours) return {};
  return fail(Errc::mismatch, "rank {} has {} {}, this rank {}: start all ranks alike", from.value, what,
              theirs, ours);
}

}  // namespace

std::vector<std::byte> encode(const Hello& hello) {
  Writer out(header_bytes + hello.addresses.size() * address_bytes);
  for (const std::uint32_t value :
       {magic, version, static_cast<std::uint32_t>(message_bytes), parcel_bytes(hello.terms.size), lanes,
        adverts_per_lane, hello.terms.piece_bytes, hello.terms.communicator,
        static_cast<std::uint32_t>(hello.terms.size), static_cast<std::uint32_t>(hello.rank.value)})
    out.u32(value);
  for (const verbs::QpAddress& address : hello.addresses) {
    out.u32(address.qpn);
    out.u32(address.psn);
    out.u32(address.mtu_bytes);
    out.u32(address.reads);
    out.raw(address.gid.bytes.data(), address.gid.bytes.size());
  }
  return out.take();
}

Result<Hello> decode_hello(Bytes bytes, Rank from, const Terms& ours) {
  const std::size_t expected = header_bytes + static_cast<std::size_t>(ours.size) * address_bytes;
  if (bytes.size() < header_bytes || load_be32(bytes.data()) != magic)
    return fail(Errc::protocol, "what rank {} said at the start is not Beeline's greeting", from.value);
  Reader in(bytes.data() + 4);
  const auto size = static_cast<std::uint32_t>(ours.size);
  BEELINE_TRY_VOID(agree(from, "protocol version", in.u32(), version));
  BEELINE_TRY_VOID(agree(from, "a message size of", in.u32(), message_bytes));
  BEELINE_TRY_VOID(agree(from, "small calls of at most, in bytes,", in.u32(), parcel_bytes(ours.size)));
  BEELINE_TRY_VOID(agree(from, "lanes:", in.u32(), lanes));
  BEELINE_TRY_VOID(agree(from, "adverts per lane:", in.u32(), adverts_per_lane));
  BEELINE_TRY_VOID(agree(from, "a piece size of", in.u32(), ours.piece_bytes));
  BEELINE_TRY_VOID(agree(from, "a group with id", in.u32(), ours.communicator));
  BEELINE_TRY_VOID(agree(from, "a group size of", in.u32(), size));
  BEELINE_TRY_VOID(agree(from, "the rank", in.u32(), static_cast<std::uint32_t>(from.value)));
  if (bytes.size() != expected)
    return fail(Errc::protocol, "the greeting of rank {} has {} bytes, not {}", from.value, bytes.size(),
                expected);

  Hello hello{.rank = from, .terms = ours, .addresses = {}};
  for (int rank = 0; rank < ours.size; ++rank) {
    verbs::QpAddress address{.qpn = in.u32(), .psn = in.u32(), .gid = {}, .mtu_bytes = in.u32()};
    address.reads = static_cast<std::uint8_t>(std::min(in.u32(), 255u));
    in.raw(address.gid.bytes.data(), address.gid.bytes.size());
    if (rank != from.value && !plausible(address))
      return fail(Errc::protocol, "rank {} gives rank {} an impossible address (QPN {:#x}, MTU {})",
                  from.value, rank, address.qpn, address.mtu_bytes);
    hello.addresses.push_back(address);
  }
  return hello;
}

}  // namespace beeline::exec
