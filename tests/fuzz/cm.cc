// Management datagrams: the messages of the connection manager, and a manager that hears them. The input is a
// script: what the user does, what arrives, and time.
#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "input.h"
#include "proto/cm/manager.h"
#include "targets.h"
#include "wire/cm/ip_header.h"
#include "wire/cm/service_id.h"

namespace beeline::fuzz {
namespace {

namespace cm = wire::cm;
using proto::cm::CommId;
using proto::cm::EventKind;
using proto::cm::Manager;

constexpr IpAddress own = IpAddress::v4(10, 0, 0, 1), peer = IpAddress::v4(10, 0, 0, 2);
constexpr std::uint64_t service = cm::service_id(cm::PortSpace::tcp, 7174);
constexpr std::uint64_t datagrams = cm::service_id(cm::PortSpace::udp, 7174);

enum class Command : std::uint8_t { raw, message, connect, resolve, answer, refuse, leave, pass_time, count };

// Whatever parses comes out again, but for reserved bits.
void check_round_trip(Bytes datagram) {
  const auto mad = cm::parse(datagram);
  if (!mad) {
    BEELINE_CHECK(!cm::name(mad.error()).empty());
    return;
  }
  const auto again = cm::emit(*mad);
  BEELINE_CHECK(cm::parse(again).value() == *mad);
}

class Harness {
 public:
  explicit Harness(Bytes bytes)
      : input_(bytes),
        manager_(
            7, [this] { return random_.next(); }, limits()) {
    BEELINE_CHECK(manager_.listen(service, std::nullopt, 4).has_value());
    BEELINE_CHECK(manager_.listen(datagrams, own, 4, proto::cm::Offer::datagrams).has_value());
  }

  void run() {
    while (!input_.empty()) {
      step(static_cast<Command>(input_.u8() % static_cast<unsigned>(Command::count)));
      take_events();
      BEELINE_CHECK(manager_.connections() <= limits().connections);
    }
    for (const CommId id : ids_) manager_.forget(now_, id);
    for (int i = 0; i < 200; ++i) pass(20s);
    BEELINE_CHECK(manager_.connections() == 0);
    BEELINE_CHECK(manager_.next_timeout() == TimePoint::never());
  }

 private:
  static proto::cm::Limits limits() {
    proto::cm::Limits limits;
    limits.connections = 16;
    limits.outgoing = 64;
    return limits;
  }

  void step(Command command) {
    switch (command) {
      case Command::raw:
        return hear(input_.take(cm::mad_bytes));
      case Command::message:
        return hear_message();
      case Command::connect:
      case Command::resolve:
        return ask(command == Command::connect);
      case Command::answer: {
        const CommId id = some_id();
        (void)manager_.reply(now_, id, {}, {});
        (void)manager_.ready(now_, id, {});
        (void)manager_.answer_service(now_, id, proto::cm::SidrStatus::success, Qpn{5}, 1, {});
        return;
      }
      case Command::refuse:
        (void)manager_.reject(now_, some_id(), proto::cm::RejectReason::consumer, input_.take(input_.u8()));
        return;
      case Command::leave:
        (void)manager_.disconnect(now_, some_id());
        (void)manager_.note_traffic(now_, some_id());
        return;
      case Command::pass_time:
        return pass(Duration{std::int64_t{1} << (input_.u8() % 36)});
      case Command::count:
        break;
    }
  }

  CommId some_id() { return ids_.empty() ? CommId{} : ids_[input_.u8() % ids_.size()]; }

  void hear(Bytes bytes) {
    check_round_trip(bytes);
    (void)manager_.handle_mad(now_, own, peer, bytes);
  }

  // A header that is right, and ids that may exist; the rest as it comes.
  void hear_message() {
    std::array<std::byte, cm::mad_bytes> bytes{};
    const std::uint16_t attribute = static_cast<std::uint16_t>(0x10 + input_.u8() % 9);
    const Bytes body = input_.take(60);
    std::copy(body.begin(), body.end(), bytes.begin() + cm::mad_header_bytes);
    store_be32(bytes.data(), 0x01070203);
    store_be64(bytes.data() + 8, last_transaction_);
    store_be16(bytes.data() + 16, attribute);
    store_be32(bytes.data() + 28, some_id().value);
    auto mad = cm::parse(bytes).value();
    if (auto* req = std::get_if<cm::Req>(&mad.message)) {
      req->service_id = service;
      req->primary.local = peer;
      req->primary.remote = own;
      req->path_mtu = 3;
      emit(cm::IpHeader{peer, own, 1}, req->private_data);
    } else if (auto* sidr = std::get_if<cm::SidrReq>(&mad.message)) {
      sidr->service_id = datagrams;
      emit(cm::IpHeader{peer, own, 1}, sidr->private_data);
    } else if (auto* rep = std::get_if<cm::SidrRep>(&mad.message)) {
      rep->request_id = some_id();
    }
    hear(cm::emit(mad));
  }

  void ask(bool connection) {
    proto::cm::ConnectRequest request;
    request.local = own;
    request.remote = peer;
    request.service_id = connection ? service : datagrams;
    request.end.qpn = Qpn{input_.u8()};
    const Bytes data = input_.take(input_.u8());
    const auto id =
        connection ? manager_.connect(now_, request, data) : manager_.resolve_service(now_, request, data);
    if (id) ids_.push_back(*id);
  }

  void take_events() {
    while (const auto event = manager_.poll_event()) {
      BEELINE_CHECK(event->data_bytes <= event->data.size());
      if (event->kind == EventKind::request || event->kind == EventKind::sidr_request)
        ids_.push_back(event->connection);
    }
    std::array<proto::cm::OutMessage, 8> out;
    while (const std::size_t count = manager_.poll_transmit(out)) {
      for (std::size_t i = 0; i < count; ++i) {
        BEELINE_CHECK(out[i].local == own && out[i].remote == peer);
        last_transaction_ = cm::parse(out[i].bytes).value().transaction;
      }
    }
  }

  void pass(Duration time) {
    now_ = now_ + time;
    manager_.handle_timeout(now_);
    BEELINE_CHECK(manager_.next_timeout() > now_);
    take_events();
  }

  Input input_;
  Prng random_{1};
  TimePoint now_{1'000'000'000};
  std::uint64_t last_transaction_ = 0;
  std::vector<CommId> ids_;
  Manager manager_;
};

}  // namespace

void fuzz_cm(Bytes input) { Harness(input).run(); }

}  // namespace beeline::fuzz
