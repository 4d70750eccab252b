// Extended completion queues: one completion at a time, its fields on request (ibv_create_cq_ex(3)).

#include <arpa/inet.h>

#include <cerrno>

#include "verbs/soft/convert.h"
#include "verbs/soft/objects.h"

namespace beeline::verbs::soft {
namespace {

int take_next(Cq& cq) {
  const int got = cq.card->poll_cq(cq.queue, std::span(&cq.current, 1));
  if (got == 0) return ENOENT;
  if (got < 0) return EIO;  // overrun
  ibv_cq_ex* shown = cq.extended();
  shown->wr_id = cq.current.wr_id;
  shown->status = static_cast<ibv_wc_status>(cq.current.status);  // the values are the same
  return 0;
}

// From a start that found something to its end, other threads wait: the completion is theirs to read.
int start_poll(ibv_cq_ex* current, ibv_poll_cq_attr* attr) {
  Cq& cq = *mine(current);
  if (!cq.alive || (attr != nullptr && attr->comp_mask != 0)) return EINVAL;
  cq.polling.lock();
  if (const int error = take_next(cq); error != 0) {
    cq.polling.unlock();
    return error;
  }
  cq.is_polled = true;
  return 0;
}

int next_poll(ibv_cq_ex* current) {
  Cq& cq = *mine(current);
  return cq.alive && cq.is_polled ? take_next(cq) : EINVAL;
}

// Without a start before it, which programs do after errors, there is nothing to end.
void end_poll(ibv_cq_ex* current) {
  Cq& cq = *mine(current);
  if (cq.is_polled.exchange(false)) cq.polling.unlock();
}

const proto::Completion& completion(ibv_cq_ex* current) { return mine(current)->current; }

__be32 read_imm_data(ibv_cq_ex* current) {
  const proto::Completion& read = completion(current);
  // A union, as in struct ibv_wc: the invalidated key is in host order.
  return read.has_invalidated ? read.invalidated.value : htonl(read.immediate);
}

}  // namespace

void extend(Cq& cq) {
  ibv_cq_ex& out = *cq.extended();
  out.start_poll = start_poll;
  out.next_poll = next_poll;
  out.end_poll = end_poll;
  out.read_opcode = [](ibv_cq_ex* current) { return from_opcode(completion(current).opcode); };
  out.read_vendor_err = [](ibv_cq_ex*) { return std::uint32_t{0}; };
  out.read_byte_len = [](ibv_cq_ex* current) { return completion(current).byte_length; };
  out.read_imm_data = read_imm_data;
  out.read_qp_num = [](ibv_cq_ex* current) { return completion(current).qpn.value; };
  out.read_src_qp = [](ibv_cq_ex* current) { return completion(current).source_qpn.value; };
  out.read_wc_flags = [](ibv_cq_ex* current) { return wc_flags_of(completion(current)); };
  out.read_sl = [](ibv_cq_ex* current) { return service_level_of(completion(current)); };
  // Ethernet has no LIDs.
  out.read_slid = [](ibv_cq_ex*) { return std::uint32_t{0}; };
  out.read_dlid_path_bits = [](ibv_cq_ex*) { return std::uint8_t{0}; };
  // Not offered: a queue for which they were asked was refused. A program that calls them anyhow reads zero.
  out.read_completion_ts = [](ibv_cq_ex*) { return std::uint64_t{0}; };
  out.read_cvlan = [](ibv_cq_ex*) { return std::uint16_t{0}; };
  out.read_flow_tag = [](ibv_cq_ex*) { return std::uint32_t{0}; };
  out.read_tm_info = [](ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; };
  out.read_completion_wallclock_ns = [](ibv_cq_ex*) { return std::uint64_t{0}; };
}

}  // namespace beeline::verbs::soft
