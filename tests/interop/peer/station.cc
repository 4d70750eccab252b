#include "station.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "perf/pattern.h"

namespace beeline::interop {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::byte margin_byte{0xA7};
// A few packets below the wrap of the 24-bit sequence: every case crosses it.
constexpr std::uint32_t first_psn = 0xFFFFFD;
constexpr int receive_depth = 64;

int region_access(const Case& which, bool requester) {
  if (which.fault == Fault::no_permission && !requester)
    return IBV_ACCESS_LOCAL_WRITE |
           (which.operation == Operation::read ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ);
  return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
}

perf::PatternKey key_of(std::size_t slice, std::size_t message, bool from_requester) {
  return {message, static_cast<std::uint32_t>(slice), from_requester};
}

verbs::ConnectOptions connect_options(const Card& card, const Case& which) {
  verbs::ConnectOptions options;
  options.port = card.port;
  options.gid_index = card.gid.index;
  options.timeout = 15;  // 134 ms: an emulated machine may be slow, not dead
  if (which.requester[0] == IBV_WC_RETRY_EXC_ERR) {
    options.timeout = 14;
    options.retry_count = 2;
  }
  if (which.fault == Fault::no_receive) options.rnr_retry = 1;
  return options;
}

Json to_json(const verbs::QpAddress& address) {
  return {{"qpn", address.qpn},
          {"psn", address.psn},
          {"gid", to_string(address.gid)},
          {"mtu", address.mtu_bytes},
          {"reads", address.reads}};
}

Result<verbs::QpAddress> address_from(const Json& value) {
  verbs::QpAddress address;
  address.qpn = value.at("qpn").get<std::uint32_t>();
  address.psn = value.at("psn").get<std::uint32_t>();
  address.mtu_bytes = value.at("mtu").get<std::uint32_t>();
  address.reads = value.at("reads").get<std::uint8_t>();
  const auto gid = parse_address(value.at("gid").get<std::string>());
  if (!gid) return fail(Errc::protocol, "the other end's GID is no address: {}", value.at("gid").dump());
  address.gid = *gid;
  return address;
}

}  // namespace

Memory::Memory(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 1)) {
  void* place =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  BEELINE_CHECK(place != MAP_FAILED);
  data_ = static_cast<std::byte*>(place);
}

Memory::~Memory() { munmap(data_, bytes_); }

void Memory::unmap() {
  // Replaced rather than removed: what this program maps next must not land there.
  void* place = mmap(data_, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  BEELINE_CHECK(place == data_);
}

Layout lay_out(std::vector<std::uint32_t> sizes) {
  Layout layout{std::move(sizes), {}, 0};
  for (const std::uint32_t size : layout.sizes) {
    layout.offsets.push_back(layout.total);
    layout.total += size + margin_bytes;
  }
  return layout;
}

Result<Station> Station::open(const Card& card, const Case& which, bool requester, std::uint32_t mtu_bytes) {
  Station station;
  station.card_ = &card;
  station.case_ = &which;
  station.requester_ = requester;
  station.layout_ = lay_out(sizes_of(which, mtu_bytes));
  verbs::Provider& provider = *card.provider;
  BEELINE_TRY(station.pd_, verbs::alloc_pd(provider, card.context.get()));
  BEELINE_TRY(station.cq_, verbs::create_cq(provider, card.context.get(), 2048, nullptr));
  for (int i = 0; i < which.queue_pairs; ++i) {
    Slice slice;
    slice.memory = std::make_unique<Memory>(station.layout_.total);
    std::fill_n(slice.memory->data(), slice.memory->size(), margin_byte);
    BEELINE_TRY(slice.region, verbs::register_memory(provider, station.pd_.get(), slice.memory->data(),
                                                     station.layout_.total, region_access(which, requester)));
    verbs::QpOptions options;
    options.receive_depth = receive_depth;
    BEELINE_TRY(slice.qp, verbs::create_rc_qp(provider, station.pd_.get(), station.cq_.get(),
                                              station.cq_.get(), options));
    slice.self = {slice.qp->qp_num, first_psn, card.gid.gid, mtu_bytes, 4};
    station.slices_.push_back(std::move(slice));
  }
  return station;
}

Json Station::introduction() const {
  Json all = Json::array();
  for (const Slice& slice : slices_)
    all.push_back({{"qp", to_json(slice.self)},
                   {"address", reinterpret_cast<std::uintptr_t>(slice.memory->data())},
                   {"rkey", slice.region->rkey}});
  return all;
}

Result<void> Station::connect(const Json& answer) {
  if (!answer.is_array() || answer.size() != slices_.size())
    return fail(Errc::protocol, "the other end introduced {} queue pairs, not {}", answer.size(),
                slices_.size());
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    Slice& slice = slices_[i];
    BEELINE_TRY(slice.remote.qp, address_from(answer[i].at("qp")));
    slice.remote.address = answer[i].at("address").get<std::uint64_t>();
    slice.remote.rkey = answer[i].at("rkey").get<std::uint32_t>();
    verbs::QpAddress expected = slice.remote.qp;
    // Whoever expects an earlier packet takes every packet for one from the future.
    if (case_->fault == Fault::wrong_psn && !requester_) expected.psn = (expected.psn - 1000) & 0xFFFFFF;
    BEELINE_TRY_VOID(verbs::connect_rc(*card_->provider, slice.qp.get(), slice.self, expected,
                                       connect_options(*card_, *case_)));
  }
  return {};
}

MutableBytes Station::message(std::size_t slice, std::size_t message) {
  return {slices_[slice].memory->data() + layout_.offsets[message], layout_.sizes[message]};
}

Result<void> Station::post_message(std::size_t slice, std::size_t index, std::uint32_t lkey_change) {
  Slice& from = slices_[slice];
  const MutableBytes bytes = message(slice, index);
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(bytes.data()), static_cast<std::uint32_t>(bytes.size()),
              from.region->lkey ^ lkey_change};
  ibv_send_wr request{}, *bad = nullptr;
  request.wr_id = work_id(slice, index);
  request.sg_list = &sge;
  request.num_sge = bytes.empty() ? 0 : 1;
  request.opcode = opcode_of(case_->operation);
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = htobe32(static_cast<std::uint32_t>(work_id(slice, index)) ^ 0x5EED0000u);
  request.wr.rdma.remote_addr = from.remote.address + layout_.offsets[index];
  if (case_->fault == Fault::out_of_bounds)
    request.wr.rdma.remote_addr = from.remote.address + layout_.total - bytes.size() + 1;
  request.wr.rdma.rkey = from.remote.rkey;
  if (case_->fault == Fault::bad_rkey) request.wr.rdma.rkey ^= wrong_key;
  const int error = ibv_post_send(from.qp.get(), &request, &bad);
  if (error != 0) return fail_errno(error, fmt::format("posting message {} of queue pair {}", index, slice));
  return {};
}

Result<void> Station::post_receive(std::size_t slice, std::size_t index, std::uint32_t bytes) {
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(message(slice, index).data()), bytes,
              slices_[slice].region->lkey};
  ibv_recv_wr request{}, *bad = nullptr;
  request.wr_id = work_id(slice, index);
  request.sg_list = &sge;
  request.num_sge = bytes == 0 ? 0 : 1;
  const int error = ibv_post_recv(slices_[slice].qp.get(), &request, &bad);
  if (error != 0) return fail_errno(error, fmt::format("posting receive {} of queue pair {}", index, slice));
  return {};
}

Result<std::vector<ibv_wc>> Station::wait(std::size_t count, Duration patience) {
  const auto deadline = Clock::now() + patience;
  std::vector<ibv_wc> all;
  while (all.size() < count && Clock::now() < deadline) {
    ibv_wc completion{};
    const int got = ibv_poll_cq(cq_.get(), 1, &completion);
    if (got < 0) return fail(Errc::io, "the completion queue cannot be polled");
    if (got == 0)
      std::this_thread::sleep_for(50us);
    else
      all.push_back(completion);
  }
  return all;
}

void Station::fill(bool from_requester) {
  for (std::size_t slice = 0; slice < slices_.size(); ++slice)
    for (std::size_t i = 0; i < layout_.sizes.size(); ++i)
      perf::fill_pattern(message(slice, i), key_of(slice, i, from_requester));
}

std::string Station::check_received(bool from_requester) {
  for (std::size_t slice = 0; slice < slices_.size(); ++slice)
    for (std::size_t i = 0; i < layout_.sizes.size(); ++i) {
      const auto damage = perf::check_pattern(message(slice, i), key_of(slice, i, from_requester));
      if (damage.wrong_bytes > 0)
        return fmt::format("message {} ({} bytes) of queue pair {}: {} wrong bytes, the first at {}", i,
                           layout_.sizes[i], slice, damage.wrong_bytes, damage.first_offset);
    }
  return check_margins();
}

std::string Station::check_untouched() {
  for (std::size_t slice = 0; slice < slices_.size(); ++slice) {
    const Memory& memory = *slices_[slice].memory;
    for (std::size_t at = 0; at < layout_.total; ++at)
      if (memory.data()[at] != margin_byte)
        return fmt::format("byte {} of queue pair {}'s memory changed, though the operation was refused", at,
                           slice);
  }
  return {};
}

std::string Station::check_margins() {
  for (std::size_t slice = 0; slice < slices_.size(); ++slice)
    for (std::size_t i = 0; i < layout_.sizes.size(); ++i) {
      const std::byte* margin = slices_[slice].memory->data() + layout_.offsets[i] + layout_.sizes[i];
      if (std::any_of(margin, margin + margin_bytes, [](std::byte b) { return b != margin_byte; }))
        return fmt::format("bytes behind message {} of queue pair {} changed", i, slice);
    }
  return {};
}

void Station::destroy_queue_pairs() {
  for (Slice& slice : slices_) slice.qp.reset();
}

ibv_qp_state Station::state(std::size_t slice) {
  if (!slices_[slice].qp) return IBV_QPS_UNKNOWN;
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  if (card_->provider->query_qp(slices_[slice].qp.get(), &attributes, IBV_QP_STATE, &initial) != 0)
    return IBV_QPS_UNKNOWN;
  return attributes.qp_state;
}

}  // namespace beeline::interop
