// The tools of the suite.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/random.h"
#include "verbs/common/device_shell.h"
#include "verbs/conformance/conformance.h"

namespace beeline::verbs::conformance {

int End::post_receive(std::uint64_t wr_id, std::size_t offset, std::size_t bytes) {
  ibv_sge piece = sge(offset, bytes);
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp.get(), &wr, &bad);
}

std::vector<ibv_wc> End::wait(std::size_t count) {
  std::vector<ibv_wc> taken;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (taken.size() < count && std::chrono::steady_clock::now() < deadline) {
    ibv_wc wc{};
    const int got = ibv_poll_cq(cq.get(), 1, &wc);
    EXPECT_GE(got, 0);
    if (got < 0) break;
    if (got == 1)
      taken.push_back(wc);
    else
      std::this_thread::yield();
  }
  EXPECT_EQ(taken.size(), count) << "completions missing after 20 s";
  taken.resize(count);
  return taken;
}

void Conformance::SetUp() {
  auto rig = GetParam().make();
  ASSERT_TRUE(rig) << rig.error().message;
  rig_ = std::move(*rig);
  for (Context* context : {&a_context_, &b_context_}) {
    auto opened = open_device(provider(), "");
    ASSERT_TRUE(opened) << opened.error().message;
    *context = std::move(*opened);
  }
  ibv_port_attr port{};
  ASSERT_EQ(provider().query_port(a_context_.get(), 1, &port), 0);
  mtu_ = mtu_bytes(port.active_mtu);
}

End Conformance::make_end(const EndOptions& options) {
  End end;
  end.provider = &provider();
  end.context = (ends_++ % 2 == 0 ? a_context_ : b_context_).get();
  end.gid = choose_gid(provider(), end.context, 1, std::nullopt).value();
  end.pd = alloc_pd(provider(), end.context).value();
  end.channel = create_channel(provider(), end.context).value();
  end.cq = create_cq(provider(), end.context, options.cq_depth, end.channel.get()).value();
  end.buffer.resize(options.buffer_bytes);
  end.region =
      register_memory(provider(), end.pd.get(), end.buffer.data(), end.buffer.size(), options.access).value();
  end.qp = create_rc_qp(provider(), end.pd.get(), end.cq.get(), end.cq.get(), options.qp).value();
  return end;
}

void Conformance::connect(End& a, End& b, const ConnectOptions& options) {
  Prng prng(a.qp->qp_num);
  const auto address_of = [&](const End& end) {
    QpAddress address;
    address.qpn = end.qp->qp_num;
    address.psn = static_cast<std::uint32_t>(0xFFFFF0 + prng.below(32)) & Psn::mask;
    address.gid = end.gid.gid;
    address.mtu_bytes = mtu_;
    address.reads = 4;
    return address;
  };
  const QpAddress a_address = address_of(a), b_address = address_of(b);
  ConnectOptions here = options;
  here.gid_index = a.gid.index;
  const auto first = connect_rc(provider(), a.qp.get(), a_address, b_address, here);
  ASSERT_TRUE(first) << first.error().message;
  here.gid_index = b.gid.index;
  const auto second = connect_rc(provider(), b.qp.get(), b_address, a_address, here);
  ASSERT_TRUE(second) << second.error().message;
}

void fill(std::vector<std::byte>& buffer, unsigned seed) {
  Prng prng(seed);
  for (std::byte& b : buffer) b = std::byte(static_cast<unsigned char>(prng.next()));
}

bool same(const End& a, std::size_t a_offset, const End& b, std::size_t b_offset, std::size_t bytes) {
  return std::memcmp(a.buffer.data() + a_offset, b.buffer.data() + b_offset, bytes) == 0;
}

Request::Request(ibv_wr_opcode opcode, const End& from, std::size_t offset, std::size_t bytes)
    : sge(from.sge(offset, bytes)) {
  wr.opcode = opcode;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
}

Request& Request::to(const End& target, std::size_t offset) {
  wr.wr.rdma.remote_addr = target.address(offset);
  wr.wr.rdma.rkey = target.region->rkey;
  return *this;
}

int Request::post(End& end) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(end.qp.get(), &wr, &bad);
}

}  // namespace beeline::verbs::conformance
