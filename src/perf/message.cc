#include "perf/message.h"

#include <algorithm>

namespace beeline::perf {
namespace {

constexpr std::size_t max_text_bytes = 1024;

class Writer {
 public:
  explicit Writer(MessageType type) { message_.type = type; }
  Writer& u32(std::uint32_t value) {
    store_be32(grow(4), value);
    return *this;
  }
  Writer& u64(std::uint64_t value) {
    store_be64(grow(8), value);
    return *this;
  }
  Writer& flag(bool value) { return u32(value ? 1 : 0); }
  Writer& gid(const Gid& value) {
    for (const std::uint8_t byte : value.bytes) *grow(1) = std::byte{byte};
    return *this;
  }
  Writer& text(std::string_view value) {
    value = value.substr(0, max_text_bytes);
    u32(static_cast<std::uint32_t>(value.size()));
    for (const char c : value) *grow(1) = static_cast<std::byte>(c);
    return *this;
  }
  Message take() { return std::move(message_); }

 private:
  std::byte* grow(std::size_t bytes) {
    message_.payload.resize(message_.payload.size() + bytes);
    return message_.payload.data() + message_.payload.size() - bytes;
  }
  Message message_;
};

// Reads fields; past the end it gives zeros and remembers.
class Reader {
 public:
  explicit Reader(const Message& message) : left_(message.payload) {}
  std::uint32_t u32() {
    const std::byte* p = take(4);
    return p == nullptr ? 0 : load_be32(p);
  }
  std::uint64_t u64() {
    const std::byte* p = take(8);
    return p == nullptr ? 0 : load_be64(p);
  }
  bool flag() {
    const std::uint32_t value = u32();
    good_ = good_ && value <= 1;
    return value == 1;
  }
  Gid gid() {
    Gid value;
    if (const std::byte* p = take(value.bytes.size()))
      for (std::uint8_t& byte : value.bytes) byte = load_u8(p++);
    return value;
  }
  std::string text() {
    const std::uint32_t length = u32();
    const std::byte* p = length <= max_text_bytes ? take(length) : nullptr;
    if (p == nullptr) {
      good_ = false;
      return {};
    }
    std::string value;
    for (std::uint32_t i = 0; i < length; ++i) {
      const char c = static_cast<char>(p[i]);
      value += c >= ' ' && c <= '~' ? c : '?';
    }
    return value;
  }
  // A count of entries of `entry_bytes` that really are there.
  std::uint32_t count(std::size_t entry_bytes) {
    const std::uint32_t value = u32();
    if (value > left_.size() / entry_bytes) good_ = false;
    return good_ ? value : 0;
  }
  bool complete() const { return good_ && left_.empty(); }

 private:
  const std::byte* take(std::size_t bytes) {
    if (bytes > left_.size()) {
      good_ = false;
      return nullptr;
    }
    const std::byte* p = left_.data();
    left_ = left_.subspan(bytes);
    return p;
  }
  Bytes left_;
  bool good_ = true;
};

tl::unexpected<Error> malformed(const char* what) {
  return fail(Errc::protocol, "the peer sent a malformed {} message", what);
}

}  // namespace

Message encode(const Hello& value) {
  const Plan& plan = value.plan;
  Writer out(MessageType::hello);
  out.u64(protocol_magic).u32(protocol_version).text(plan.test->name);
  out.u64(plan.size_bytes).u64(plan.iterations).u64(static_cast<std::uint64_t>(plan.duration.count()));
  out.u32(plan.queue_pairs).u32(plan.tx_depth);
  out.flag(plan.all_sizes).flag(plan.bidirectional).flag(plan.check);
  return out.take();
}

Result<Hello> decode_hello(const Message& message) {
  Reader in(message);
  if (in.u64() != protocol_magic) return fail(Errc::protocol, "the peer is not `beeline perf`");
  const std::uint32_t version = in.u32();
  if (version != protocol_version)
    return fail(
        Errc::protocol,
        "the peer speaks version {} of `beeline perf`, this end version {}: use the same Beeline on both",
        version, protocol_version);
  Hello value;
  const std::string test = in.text();
  Plan& plan = value.plan;
  plan.size_bytes = in.u64();
  plan.iterations = in.u64();
  plan.duration = Duration{static_cast<std::int64_t>(in.u64())};
  plan.queue_pairs = in.u32();
  plan.tx_depth = in.u32();
  plan.all_sizes = in.flag();
  plan.bidirectional = in.flag();
  plan.check = in.flag();
  if (!in.complete()) return malformed("hello");
  plan.test = find_test(test);
  if (plan.test == nullptr) return fail(Errc::protocol, "the peer asks for an unknown test {}", test);
  BEELINE_TRY_VOID(check_plan(plan));
  return value;
}

Message encode(const EndpointInfo& value) {
  Writer out(MessageType::endpoint);
  out.gid(value.gid).u32(value.mtu_bytes).u32(value.reads);
  out.u32(static_cast<std::uint32_t>(value.queue_pairs.size()));
  for (const PeerQueuePair& qp : value.queue_pairs)
    out.u32(qp.qpn).u32(qp.psn).u32(qp.rkey).u64(qp.source).u64(qp.sink);
  return out.take();
}

Result<EndpointInfo> decode_endpoint(const Message& message) {
  Reader in(message);
  EndpointInfo value;
  value.gid = in.gid();
  value.mtu_bytes = in.u32();
  value.reads = in.u32();
  value.queue_pairs.resize(in.count(28));
  for (PeerQueuePair& qp : value.queue_pairs) {
    qp.qpn = in.u32();
    qp.psn = in.u32();
    qp.rkey = in.u32();
    qp.source = in.u64();
    qp.sink = in.u64();
  }
  if (!in.complete()) return malformed("endpoint");
  return value;
}

Message encode(const Ready& value) { return Writer(MessageType::ready).flag(value.data_in_order).take(); }

Result<Ready> decode_ready(const Message& message) {
  Reader in(message);
  const Ready value{in.flag()};
  if (!in.complete()) return malformed("ready");
  return value;
}

Message encode(const Round& value) {
  Writer out(MessageType::round);
  out.u64(value.size_bytes).u64(value.first_iteration).u64(value.iterations);
  out.u64(static_cast<std::uint64_t>(value.duration.count()));
  return out.take();
}

Result<Round> decode_round(const Message& message) {
  Reader in(message);
  Round value;
  value.size_bytes = in.u64();
  value.first_iteration = in.u64();
  value.iterations = in.u64();
  value.duration = Duration{static_cast<std::int64_t>(in.u64())};
  if (!in.complete()) return malformed("round");
  return value;
}

Message encode(const Finished& value) {
  Writer out(MessageType::finished);
  out.u64(value.messages).u64(static_cast<std::uint64_t>(value.elapsed_ns));
  out.u32(static_cast<std::uint32_t>(value.per_queue_pair.size()));
  for (const std::uint64_t count : value.per_queue_pair) out.u64(count);
  return out.take();
}

Result<Finished> decode_finished(const Message& message) {
  Reader in(message);
  Finished value;
  value.messages = in.u64();
  value.elapsed_ns = static_cast<std::int64_t>(in.u64());
  value.per_queue_pair.resize(in.count(8));
  for (std::uint64_t& count : value.per_queue_pair) count = in.u64();
  if (!in.complete() || value.elapsed_ns < 0) return malformed("finished");
  return value;
}

Message encode(const Verdict& value) {
  return Writer(MessageType::verdict)
      .u64(value.checked_bytes)
      .u64(value.wrong_bytes)
      .text(value.first)
      .take();
}

Result<Verdict> decode_verdict(const Message& message) {
  Reader in(message);
  Verdict value;
  value.checked_bytes = in.u64();
  value.wrong_bytes = in.u64();
  value.first = in.text();
  if (!in.complete()) return malformed("verdict");
  return value;
}

Message encode_failure(std::string_view sentence) {
  return Writer(MessageType::failure).text(sentence).take();
}

std::string decode_failure(const Message& message) {
  Reader in(message);
  std::string sentence = in.text();
  return in.complete() && !sentence.empty() ? sentence : "it failed without saying why";
}

Message empty_message(MessageType type) { return {type, {}}; }

}  // namespace beeline::perf
