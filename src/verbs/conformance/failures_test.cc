// What goes wrong gets the right status, then the queue pair flushes.
#include <cerrno>

#include "verbs/conformance/conformance.h"

namespace beeline::verbs::conformance {
namespace {

ibv_qp_state state_of(End& end) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(end.provider->query_qp(end.qp.get(), &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

}  // namespace

TEST_P(Failures, NothingIsPostedBeforeItsState) {
  End a = make_end();
  EXPECT_EQ(a.post_receive(1, 0, 64), EINVAL) << "RESET takes no receives";
  ibv_send_wr* bad = nullptr;
  Request request(IBV_WR_SEND, a, 0, 8);
  EXPECT_EQ(ibv_post_send(a.qp.get(), &request.wr, &bad), EINVAL);
  EXPECT_EQ(bad, &request.wr);
}

TEST_P(Failures, OperationsThatAreNotOfferedAreRefused) {
  End a = make_end(), b = make_end();
  connect(a, b);
  // A bind without a window, and what no provider here has.
  for (const ibv_wr_opcode opcode : {IBV_WR_BIND_MW, IBV_WR_TSO, IBV_WR_DRIVER1})
    EXPECT_NE(Request(opcode, a, 0, 8).to(b).post(a), 0) << opcode;
  EXPECT_EQ(Request(IBV_WR_RDMA_WRITE, a, 0, 8).to(b).post(a), 0) << "and change nothing";
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_SUCCESS);
}

TEST_P(Failures, ABadLocalKeyIsAProtectionError) {
  End a = make_end(), b = make_end();
  connect(a, b);
  ASSERT_EQ(a.post_receive(77, 0, 64), 0);
  Request bad(IBV_WR_RDMA_WRITE, a, 0, 8);
  bad.to(b).id(1);
  bad.sge.lkey ^= 0xFF00;
  ASSERT_EQ(bad.post(a), 0);
  const auto completions = a.wait(2);
  EXPECT_EQ(completions[0].wr_id, 1u);
  EXPECT_EQ(completions[0].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(completions[1].wr_id, 77u);
  EXPECT_EQ(completions[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(state_of(a), IBV_QPS_ERR);
  ASSERT_EQ(Request(IBV_WR_RDMA_WRITE, a, 0, 8).to(b).id(3).post(a), 0) << "ERR takes requests";
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_WR_FLUSH_ERR) << "and flushes them";
}

struct RemoteFault {
  const char* name;
  ibv_wr_opcode opcode;
  void (*spoil)(Request&, const End& target);
};
const RemoteFault remote_faults[] = {
    {"wrong key", IBV_WR_RDMA_WRITE, [](Request& r, const End&) { r.wr.wr.rdma.rkey ^= 0xFF00; }},
    {"wrong key", IBV_WR_RDMA_READ, [](Request& r, const End&) { r.wr.wr.rdma.rkey ^= 0xFF00; }},
    {"one byte too far", IBV_WR_RDMA_WRITE,
     [](Request& r, const End& t) { r.wr.wr.rdma.remote_addr = t.address(t.buffer.size() - 7); }},
    {"one byte too early", IBV_WR_RDMA_READ,
     [](Request& r, const End& t) { r.wr.wr.rdma.remote_addr = t.address() - 1; }},
    {"around the end of the address space", IBV_WR_RDMA_WRITE,
     [](Request& r, const End&) { r.wr.wr.rdma.remote_addr = UINT64_MAX - 3; }},
};

TEST_P(Failures, RemoteAccessIsChecked) {
  for (const RemoteFault& fault : remote_faults) {
    SCOPED_TRACE(testing::Message() << fault.name << ", opcode " << fault.opcode);
    End a = make_end(), b = make_end();
    connect(a, b);
    fill(a.buffer, 1);
    Request request(fault.opcode, a, 0, 8);
    request.to(b).id(4);
    fault.spoil(request, b);
    ASSERT_EQ(request.post(a), 0);
    const ibv_wc wc = a.wait(1)[0];
    EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(wc.wr_id, 4u);
    EXPECT_EQ(state_of(a), IBV_QPS_ERR);
    EXPECT_EQ(b.buffer, std::vector<std::byte>(b.buffer.size()));
  }
}

TEST_P(Failures, RightsOfTheRegionAreChecked) {
  End a = make_end();
  End b = make_end({.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});
  connect(a, b);
  EXPECT_EQ(Request(IBV_WR_RDMA_READ, a, 0, 8).to(b).post(a), 0);
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(Request(IBV_WR_RDMA_WRITE, a, 0, 8).to(b).post(a), 0);
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Failures, ADeregisteredRegionIsClosed) {
  End a = make_end(), b = make_end();
  connect(a, b);
  Request request(IBV_WR_RDMA_WRITE, a, 0, 8);
  request.to(b);
  b.region.reset();
  ASSERT_EQ(request.post(a), 0);
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Failures, AMessageLongerThanTheReceiveFailsBothEnds) {
  End a = make_end(), b = make_end();
  connect(a, b);
  ASSERT_EQ(b.post_receive(1, 0, 3000), 0);
  ASSERT_EQ(b.post_receive(2, 4000, 3000), 0);
  ASSERT_EQ(Request(IBV_WR_SEND, a, 0, 3001).post(a), 0);
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_REM_INV_REQ_ERR);
  const auto received = b.wait(2);
  EXPECT_EQ(received[0].wr_id, 1u);
  EXPECT_EQ(received[0].status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(received[1].wr_id, 2u);
  EXPECT_EQ(received[1].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_P(Failures, ErrorStateFlushesWhatIsPosted) {
  End a = make_end(), b = make_end();
  connect(a, b);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(a.post_receive(i, 0, 64), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(provider().modify_qp(a.qp.get(), &attr, IBV_QP_STATE), 0);
  const auto flushed = a.wait(3);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(flushed[i].wr_id, i);
    EXPECT_EQ(flushed[i].status, IBV_WC_WR_FLUSH_ERR);
  }
  ASSERT_EQ(a.post_receive(9, 0, 64), 0);
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_P(Failures, AVanishedPeerExceedsTheRetries) {
  End a = make_end(), b = make_end();
  connect(a, b, {.timeout = 8, .retry_count = 2});  // 1 ms
  Request first(IBV_WR_RDMA_WRITE, a, 0, 8), second(IBV_WR_RDMA_WRITE, a, 0, 8);
  first.to(b).id(1);
  second.to(b).id(2);
  b.qp.reset();
  ASSERT_EQ(first.post(a), 0);
  const int posted = second.post(a);  // accepted in RTS and in ERR
  ASSERT_EQ(posted, 0);
  const auto completions = a.wait(2);
  EXPECT_EQ(completions[0].wr_id, 1u);
  EXPECT_EQ(completions[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(completions[1].wr_id, 2u);
  EXPECT_EQ(completions[1].status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(second.post(a), 0) << "now surely in ERR";
  EXPECT_EQ(a.wait(1)[0].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_P(Failures, CompletionsOfADestroyedQueuePairAreGone) {
  End a = make_end(), b = make_end();
  connect(a, b);
  ASSERT_EQ(a.post_receive(1, 0, 64), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(provider().modify_qp(a.qp.get(), &attr, IBV_QP_STATE), 0);
  a.qp.reset();
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(a.cq.get(), 1, &wc), 0);
}

TEST_P(Failures, StatusInWords) {
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
    const std::string text = describe(static_cast<ibv_wc_status>(status));
    EXPECT_NE(text.find("(" + std::to_string(status) + "): "), std::string::npos) << text;
  }
  EXPECT_EQ(describe(static_cast<ibv_wc_status>(31)), "unknown completion status 31");
}

}  // namespace beeline::verbs::conformance
