// What the kernel's UDP can carry when it is used as a RoCE v2 card must use it: messages framed as packets
// of a path MTU (BTH, RETH on the first, ICRC), gathered from memory in trains by UDP_SEGMENT, received by
// UDP_GRO, with a window of unacknowledged bytes. And what it takes to answer at once: a ping-pong that
// spins. There is no reliability, no checksum and no copy into place: it is the limit that bench/compare
// holds the card against, not a protocol.
//
//   raw_udp receive ADDRESS                              until the sender says that it is done
//   raw_udp send ADDRESS [--message B] [--mtu B] [--window B] [--seconds S]
//   raw_udp echo ADDRESS                                 until the other side says that it is done
//   raw_udp ping ADDRESS [--iterations N]                half round trips of a SEND of 2 bytes
// All take --port (14791).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t bth_bytes = 12, reth_bytes = 16, icrc_bytes = 4, ack_bytes = 20;
constexpr std::size_t longest_train = 65507;
constexpr unsigned char first = 0x06, middle = 0x07, last = 0x08, only = 0x0a,
                        done = 0xff;  // done: not RoCE's
constexpr std::uint32_t psn_mask = 0xffffff;
constexpr unsigned deadline_seconds = 120;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "raw_udp: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

// The part of a base transport header that the two ends read.
struct Bth {
  unsigned char bytes[bth_bytes] = {};
  unsigned char opcode() const { return bytes[0]; }
  bool asks_for_ack() const { return (bytes[8] & 0x80) != 0; }
  std::uint32_t psn() const {
    return static_cast<std::uint32_t>(bytes[9]) << 16 | static_cast<std::uint32_t>(bytes[10]) << 8 |
           bytes[11];
  }
  void set(unsigned char opcode, std::uint32_t psn, bool ask_for_ack) {
    bytes[0] = opcode;
    bytes[8] = ask_for_ack ? 0x80 : 0;
    bytes[9] = static_cast<unsigned char>(psn >> 16);
    bytes[10] = static_cast<unsigned char>(psn >> 8);
    bytes[11] = static_cast<unsigned char>(psn);
  }
};

sockaddr_in address_of(const std::string& text, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) {
    std::fprintf(stderr, "raw_udp: '%s' is not an IPv4 address\n", text.c_str());
    std::exit(2);
  }
  return address;
}

int open_socket() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) fail("socket()");
  const int bytes = 8 << 20;
  for (const auto& [force, plain] :
       {std::pair(SO_RCVBUFFORCE, SO_RCVBUF), std::pair(SO_SNDBUFFORCE, SO_SNDBUF)}) {
    if (::setsockopt(socket, SOL_SOCKET, force, &bytes, sizeof bytes) != 0) {
      (void)::setsockopt(socket, SOL_SOCKET, plain, &bytes, sizeof bytes);
    }
  }
  return socket;
}

int serve(const std::string& address, std::uint16_t port) {
  const int socket = open_socket();
  const sockaddr_in here = address_of(address, port);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0) fail("bind()");
  return socket;
}

int call(const std::string& address, std::uint16_t port) {
  const int socket = open_socket();
  const sockaddr_in there = address_of(address, port);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) fail("connect()");
  return socket;
}

enum class Wait { spin, sleep };

// Until a datagram is there or the time is over: -1. After a moment, far longer than an answer takes, `spin`
// lets others have the core between two looks (where there are too few cores, that other is the one who is to
// answer), and `sleep` sleeps.
ssize_t receive_by(int socket, msghdr& message, Clock::time_point deadline, Wait wait) {
  const auto patient_until = Clock::now() + std::chrono::microseconds(100);
  for (;;) {
    const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT);
    if (got >= 0) return got;
    if (errno != EAGAIN && errno != ECONNREFUSED) fail("recvmsg()");
    const auto now = Clock::now();
    if (now > deadline) return -1;
    if (now < patient_until) continue;
    if (wait == Wait::spin) {
      ::sched_yield();
    } else {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now);
      pollfd ready{socket, POLLIN, 0};
      (void)::poll(&ready, 1, static_cast<int>(left.count()) + 1);
    }
  }
}

ssize_t receive_by(int socket, void* into, std::size_t size, Clock::time_point deadline, Wait wait) {
  iovec part{into, size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return receive_by(socket, message, deadline, wait);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Several times, for what is on its way may fill the other side's buffer.
void say_done(int socket) {
  Bth bth;
  bth.set(done, 0, false);
  for (int i = 0; i < 10; ++i) {
    (void)::send(socket, bth.bytes, bth_bytes, 0);
    ::usleep(5000);
  }
}

// What may be on its way: a quarter of what the kernel has granted, for it counts its bookkeeping, too. Both
// ends get the same here.
std::size_t receive_buffer_bytes(int socket) {
  int granted = 0;
  socklen_t length = sizeof granted;
  if (::getsockopt(socket, SOL_SOCKET, SO_RCVBUF, &granted, &length) != 0) fail("SO_RCVBUF");
  return static_cast<std::size_t>(granted) / 4;
}

// One message as packets: their headers and trailers, and the trains in which they leave.
class Message {
 public:
  Message(const std::vector<unsigned char>& memory, std::size_t mtu)
      : memory_(memory), mtu_(mtu), packets_((memory.size() + mtu - 1) / mtu), bth_(packets_) {}

  std::size_t packets() const { return packets_; }
  std::size_t bytes() const { return memory_.size(); }

  void send(int socket, std::uint32_t psn, bool ask_for_ack) {
    for (std::size_t i = 0; i < packets_; ++i) {
      const unsigned char opcode = packets_ == 1 ? only : i == 0 ? first : i + 1 == packets_ ? last : middle;
      bth_[i].set(opcode, (psn + static_cast<std::uint32_t>(i)) & psn_mask, ask_for_ack && i + 1 == packets_);
    }
    // A train has segments of one size, but for a shorter last one: the first packet, which is longer than
    // those that follow, can lead only one of them.
    std::size_t at = send_train(socket, 0, std::min<std::size_t>(2, packets_));
    const std::size_t in_train = std::min<std::size_t>(longest_train / segment_bytes(1), 64);
    while (at < packets_) at = send_train(socket, at, std::min(in_train, packets_ - at));
  }

 private:
  std::size_t payload_bytes(std::size_t i) const { return std::min(mtu_, memory_.size() - i * mtu_); }
  std::size_t segment_bytes(std::size_t i) const {
    return bth_bytes + (i == 0 ? reth_bytes : 0) + mtu_ + icrc_bytes;
  }

  std::size_t send_train(int socket, std::size_t from, std::size_t count) {
    parts_.clear();
    for (std::size_t i = from; i < from + count; ++i) {
      parts_.push_back({bth_[i].bytes, bth_bytes});
      if (i == 0) parts_.push_back({reth_.data(), reth_bytes});
      parts_.push_back({const_cast<unsigned char*>(memory_.data()) + i * mtu_, payload_bytes(i)});
      parts_.push_back({icrc_.data(), icrc_bytes});
    }
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> control{};
    msghdr message{};
    message.msg_iov = parts_.data();
    message.msg_iovlen = parts_.size();
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_UDP;
    header->cmsg_type = UDP_SEGMENT;
    header->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    const auto size = static_cast<std::uint16_t>(segment_bytes(from));
    std::memcpy(CMSG_DATA(header), &size, sizeof size);
    if (::sendmsg(socket, &message, 0) < 0 && errno != ENOBUFS && errno != ECONNREFUSED) fail("sendmsg()");
    return from + count;
  }

  const std::vector<unsigned char>& memory_;
  std::size_t mtu_;
  std::size_t packets_;
  std::vector<Bth> bth_;
  std::array<unsigned char, reth_bytes> reth_{};
  std::array<unsigned char, icrc_bytes> icrc_{};
  std::vector<iovec> parts_;
};

struct Stream {
  std::size_t message = 65536, mtu = 4096, window = 1 << 20;
  double seconds = 2;
};

int send_stream(const std::string& address, std::uint16_t port, const Stream& stream) {
  const int socket = call(address, port);
  const std::vector<unsigned char> memory(stream.message, 1);
  Message message(memory, stream.mtu);
  const std::size_t window_bytes = std::min(stream.window, receive_buffer_bytes(socket));
  const auto window = std::max<std::uint32_t>(static_cast<std::uint32_t>(window_bytes / stream.mtu),
                                              static_cast<std::uint32_t>(message.packets()));
  // Four acknowledgements per window: one per message at most.
  const std::size_t ack_every = std::max<std::size_t>(1, window_bytes / stream.message / 4);
  std::uint32_t sent = 0, acknowledged = 0;  // packets; their differences count, so they may wrap
  std::uint64_t messages = 0, stalls = 0;
  const auto start = Clock::now();
  while (seconds_since(start) < stream.seconds) {
    while (sent - acknowledged + message.packets() > window) {
      unsigned char answer[ack_bytes];
      Bth bth;
      if (receive_by(socket, answer, sizeof answer, Clock::now() + std::chrono::milliseconds(20),
                     Wait::sleep) < 0) {
        ++stalls;  // lost: nothing is sent twice here, so go on as if it had arrived
        acknowledged = sent;
        break;
      }
      std::memcpy(bth.bytes, answer, bth_bytes);
      const std::uint32_t newly = (bth.psn() + 1 - acknowledged) & psn_mask;
      if (newly <= sent - acknowledged) acknowledged += newly;
    }
    message.send(socket, sent, ++messages % ack_every == 0);
    sent += static_cast<std::uint32_t>(message.packets());
  }
  const double seconds = seconds_since(start);
  say_done(socket);
  std::printf("{\"sent_bytes\": %llu, \"seconds\": %.6f, \"stalls\": %llu}\n",
              static_cast<unsigned long long>(messages * message.bytes()), seconds,
              static_cast<unsigned long long>(stalls));
  return 0;
}

// The segments of what UDP_GRO has put together.
std::size_t segment_size(msghdr& message, std::size_t whole) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_UDP && header->cmsg_type == UDP_GRO) {
      int size = 0;
      std::memcpy(&size, CMSG_DATA(header), sizeof size);
      return static_cast<std::size_t>(size);
    }
  }
  return whole;
}

class Receiver {
 public:
  Receiver(const std::string& address, std::uint16_t port) : socket_(serve(address, port)), buffer_(1 << 16) {
    const int on = 1;
    if (::setsockopt(socket_, SOL_UDP, UDP_GRO, &on, sizeof on) != 0) fail("UDP_GRO");
  }

  int run() {
    while (!done_) receive();
    const double seconds = std::chrono::duration<double>(end_ - start_).count();
    std::printf("{\"received_bytes\": %llu, \"seconds\": %.6f, \"GBps\": %.6f}\n",
                static_cast<unsigned long long>(bytes_), seconds,
                seconds > 0 ? static_cast<double>(bytes_) / seconds / 1e9 : 0.0);
    return 0;
  }

 private:
  void receive() {
    iovec part{buffer_.data(), buffer_.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    sockaddr_in from{};
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = receive_by(socket_, message, Clock::now() + std::chrono::seconds(1), Wait::sleep);
    if (got < 0) return;
    const auto whole = static_cast<std::size_t>(got);
    const std::size_t segment = std::max<std::size_t>(segment_size(message, whole), 1);
    for (std::size_t at = 0; at + bth_bytes <= whole; at += segment)
      take(at, std::min(segment, whole - at), from);
  }

  void take(std::size_t at, std::size_t size, const sockaddr_in& from) {
    Bth bth;
    std::memcpy(bth.bytes, buffer_.data() + at, bth_bytes);
    if (bth.opcode() == done) {
      done_ = true;
      return;
    }
    const bool has_reth = bth.opcode() == first || bth.opcode() == only;
    const std::size_t around = bth_bytes + icrc_bytes + (has_reth ? reth_bytes : 0);
    if (size < around) return;
    if (bytes_ == 0) start_ = Clock::now();
    bytes_ += size - around;
    end_ = Clock::now();
    if (bth.asks_for_ack()) acknowledge(bth.psn(), from);
  }

  void acknowledge(std::uint32_t psn, const sockaddr_in& to) {
    std::array<unsigned char, ack_bytes> answer{};
    Bth bth;
    bth.set(0x11, psn, false);
    std::memcpy(answer.data(), bth.bytes, bth_bytes);
    (void)::sendto(socket_, answer.data(), answer.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                   sizeof to);
  }

  int socket_;
  std::vector<unsigned char> buffer_;
  std::uint64_t bytes_ = 0;
  Clock::time_point start_{}, end_{};
  bool done_ = false;
};

int echo(const std::string& address, std::uint16_t port) {
  const int socket = serve(address, port);
  for (;;) {
    std::array<unsigned char, ack_bytes> packet{};
    iovec part{packet.data(), packet.size()};
    sockaddr_in from{};
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t got = receive_by(socket, message, Clock::now() + std::chrono::seconds(1), Wait::spin);
    if (got < 0) continue;
    if (packet[0] == done) return 0;
    (void)::sendto(socket, packet.data(), static_cast<std::size_t>(got), 0,
                   reinterpret_cast<sockaddr*>(&from), sizeof from);
  }
}

// A SEND of 2 bytes is a BTH, the payload filled up to 4 bytes, and the ICRC.
int ping(const std::string& address, std::uint16_t port, std::size_t iterations) {
  const int socket = call(address, port);
  const std::size_t warm_up = iterations / 10;
  std::array<unsigned char, ack_bytes> packet{};
  std::vector<double> half_us;
  for (std::size_t i = 0; i < warm_up + iterations; ++i) {
    const auto start = Clock::now();
    if (::send(socket, packet.data(), packet.size(), 0) < 0 && errno != ECONNREFUSED) fail("send()");
    if (receive_by(socket, packet.data(), packet.size(), start + std::chrono::milliseconds(200), Wait::spin) <
        0)
      continue;
    if (i >= warm_up) half_us.push_back(seconds_since(start) * 1e6 / 2);
  }
  say_done(socket);
  if (half_us.empty()) {
    std::fprintf(stderr, "raw_udp: nobody answered\n");
    return 1;
  }
  std::sort(half_us.begin(), half_us.end());
  std::printf("{\"iterations\": %zu, \"half_us\": {\"min\": %.3f, \"median\": %.3f, \"p99\": %.3f}}\n",
              half_us.size(), half_us.front(), half_us[half_us.size() / 2],
              half_us[half_us.size() * 99 / 100]);
  return 0;
}

std::string option(const std::vector<std::string>& words, const std::string& name,
                   const std::string& otherwise) {
  const auto at = std::find(words.begin(), words.end(), name);
  return at == words.end() || at + 1 == words.end() ? otherwise : *(at + 1);
}

int run(const std::vector<std::string>& words) {
  if (words.size() < 2) {
    std::fprintf(stderr, "raw_udp: receive, send, echo or ping, and an address\n");
    return 2;
  }
  ::alarm(deadline_seconds);
  const std::string& what = words[0];
  const std::string& address = words[1];
  const auto port = static_cast<std::uint16_t>(std::stoul(option(words, "--port", "14791")));
  if (what == "receive") return Receiver(address, port).run();
  if (what == "echo") return echo(address, port);
  if (what == "ping") return ping(address, port, std::stoul(option(words, "--iterations", "5000")));
  if (what == "send") {
    Stream stream;
    stream.message = std::stoul(option(words, "--message", "65536"));
    stream.mtu = std::stoul(option(words, "--mtu", "4096"));
    stream.window = std::stoul(option(words, "--window", "1048576"));
    stream.seconds = std::stod(option(words, "--seconds", "2"));
    return send_stream(address, port, stream);
  }
  std::fprintf(stderr, "raw_udp: there is no '%s'\n", what.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::logic_error&) {  // std::stoul's and std::stod's
    std::fprintf(stderr, "raw_udp: an option's value is not a number\n");
    return 2;
  }
}
