#include "doctor/peer/rc_end.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/random.h"
#include "doctor/peer/channel.h"

namespace beeline::doctor::peer {
namespace {

// An attempt waits 4.096 us * 2^13 = 34 ms; seven more follow it.
constexpr std::uint8_t ack_timeout = 13, retries = 7;
constexpr int queue_depth = 8;

std::vector<std::byte> pattern(std::uint64_t seed) {
  std::vector<std::byte> bytes(rc_write_bytes + rc_send_bytes);
  Prng prng(seed);
  for (auto& byte : bytes) byte = static_cast<std::byte>(prng.next());
  return bytes;
}

beeline::Result<std::uint64_t> number(const nlohmann::json& object, const char* key, std::uint64_t most) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() > most)
    return fail(Errc::protocol, "the other end describes its queue pair without a usable '{}'", key);
  return found->get<std::uint64_t>();
}

}  // namespace

beeline::Result<RcEnd> RcEnd::create(verbs::Provider& provider, const std::string& device,
                                     const IpAddress& gid) {
  RcEnd end;
  end.provider_ = &provider;
  end.device_ = device;
  BEELINE_TRY(const auto all, verbs::summarize_devices(provider));
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == device; });
  if (found == all.end()) return fail(Errc::not_found, "no device {} that this program drives", device);
  const auto choice =
      std::find_if(found->gids.begin(), found->gids.end(), [&](const auto& one) { return one.gid == gid; });
  if (choice == found->gids.end())
    return fail(Errc::not_found, "{} has no RoCE v2 GID {}", device, to_string(gid));
  end.gid_ = *choice;
  end.mtu_bytes_ = found->active_mtu_bytes;
  end.psn_ = static_cast<std::uint32_t>(secure_random()) & 0xFF'FFFFu;
  end.memory_.resize(2 * std::size_t{rc_write_bytes + rc_send_bytes});
  BEELINE_TRY(end.context_, verbs::open_device(provider, device));
  BEELINE_TRY(end.pd_, verbs::alloc_pd(provider, end.context_.get()));
  BEELINE_TRY(end.region_,
              verbs::register_memory(provider, end.pd_.get(), end.memory_.data(), end.memory_.size(),
                                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  BEELINE_TRY(end.cq_, verbs::create_cq(provider, end.context_.get(), 2 * queue_depth, nullptr));
  verbs::QpOptions options;
  options.send_depth = options.receive_depth = queue_depth;
  BEELINE_TRY(end.qp_, verbs::create_rc_qp(provider, end.pd_.get(), end.cq_.get(), end.cq_.get(), options));
  return end;
}

nlohmann::json RcEnd::info() const {
  return {{"qpn", qp_->qp_num},
          {"psn", psn_},
          {"gid", to_string(gid_.gid)},
          {"mtu", mtu_bytes_},
          {"rkey", region_->rkey},
          {"address", reinterpret_cast<std::uintptr_t>(memory_.data()) + rc_write_bytes + rc_send_bytes}};
}

beeline::Result<void> RcEnd::connect(const nlohmann::json& peer) {
  if (!peer.is_object()) return fail(Errc::protocol, "the other end does not describe its queue pair");
  verbs::QpAddress remote;
  BEELINE_TRY(const auto qpn, number(peer, "qpn", 0xFF'FFFF));
  BEELINE_TRY(const auto psn, number(peer, "psn", 0xFF'FFFF));
  BEELINE_TRY(const auto mtu, number(peer, "mtu", 4096));
  BEELINE_TRY(const auto rkey, number(peer, "rkey", UINT32_MAX));
  BEELINE_TRY(peer_.address, number(peer, "address", UINT64_MAX));
  const auto gid = peer.find("gid");
  const auto parsed =
      gid != peer.end() && gid->is_string() ? parse_address(gid->get<std::string>()) : std::nullopt;
  if (!parsed || mtu < 256) return fail(Errc::protocol, "the other end gives no GID or no MTU");
  peer_.rkey = static_cast<std::uint32_t>(rkey);
  remote.qpn = static_cast<std::uint32_t>(qpn);
  remote.psn = static_cast<std::uint32_t>(psn);
  remote.mtu_bytes = static_cast<std::uint32_t>(mtu);
  remote.gid = *parsed;
  const verbs::QpAddress local{qp_->qp_num, psn_, gid_.gid, mtu_bytes_, 1};
  verbs::ConnectOptions options;
  options.gid_index = gid_.index;
  options.timeout = ack_timeout;
  options.retry_count = retries;
  options.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  return verbs::connect_rc(*provider_, qp_.get(), local, remote, options);
}

beeline::Result<void> RcEnd::post_receive() {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(sink()) + rc_write_bytes, rc_send_bytes, region_->lkey};
  ibv_recv_wr request{}, *bad = nullptr;
  request.sg_list = &piece;
  request.num_sge = 1;
  if (const int error = ibv_post_recv(qp_.get(), &request, &bad); error != 0)
    return fail_errno(error, "posting a receive on " + device_);
  return {};
}

beeline::Result<void> RcEnd::ping(std::uint64_t seed, Duration timeout) {
  const auto bytes = pattern(seed);
  std::copy(bytes.begin(), bytes.end(), source());
  ibv_sge write_piece{reinterpret_cast<std::uintptr_t>(source()), rc_write_bytes, region_->lkey};
  ibv_sge send_piece{write_piece.addr + rc_write_bytes, rc_send_bytes, region_->lkey};
  ibv_send_wr send{}, write{}, *bad = nullptr;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.send_flags = IBV_SEND_SIGNALED;
  write.sg_list = &write_piece;
  write.num_sge = 1;
  write.wr.rdma.remote_addr = peer_.address;
  write.wr.rdma.rkey = peer_.rkey;
  write.next = &send;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  send.sg_list = &send_piece;
  send.num_sge = 1;
  if (const int error = ibv_post_send(qp_.get(), &write, &bad); error != 0)
    return fail_errno(error, "posting a WRITE on " + device_);
  return wait(2, timeout);
}

beeline::Result<void> RcEnd::check(std::uint64_t seed, Duration timeout) {
  BEELINE_TRY_VOID(wait(1, timeout));
  const auto bytes = pattern(seed);
  const auto wrong = std::mismatch(bytes.begin(), bytes.end(), sink());
  if (wrong.first != bytes.end()) return fail(Errc::io, "byte {} arrived wrong", wrong.first - bytes.begin());
  return {};
}

beeline::Result<void> RcEnd::wait(int completions, Duration timeout) {
  const auto deadline = monotonic_now() + timeout;
  while (completions > 0) {
    ibv_wc done{};
    const int got = ibv_poll_cq(cq_.get(), 1, &done);
    if (got < 0) return fail(Errc::io, "the completion queue of {} broke", device_);
    if (got == 1 && done.status != IBV_WC_SUCCESS)
      return fail(done.status == IBV_WC_RETRY_EXC_ERR ? Errc::timed_out : Errc::io, "{}",
                  verbs::describe(done.status));
    completions -= got;
    if (completions > 0 && monotonic_now() >= deadline)
      return fail(Errc::timed_out, "no completion within {} s",
                  std::chrono::duration_cast<std::chrono::seconds>(timeout).count());
    if (got == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return {};
}

}  // namespace beeline::doctor::peer
