// ibv_wr_*: work requests built by calls between ibv_wr_start and ibv_wr_complete, where they are posted
// together (ibv_wr_post(3)).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "verbs/soft/requests.h"

namespace beeline::verbs::soft {

class WorkBuilder {
 public:
  // Fills the function pointers of the queue pair. `operations` are of enum ibv_qp_create_send_ops_flags; a
  // call for another one is an error that completing reports.
  WorkBuilder(Qp& qp, std::uint64_t operations);

  // What queue pairs of a type can be asked for (ibv_wr_post(3), the table of work requests).
  static std::uint64_t operations_of(proto::QpType service);

  // One thread at a time is between start and complete (or abort); others wait in start.
  void start();
  int complete();
  void abort();

  // Begins a request. `operation` is the flag that allows it.
  proto::SendWr& begin(proto::WrOpcode opcode, std::uint64_t operation);
  void bind(ibv_mw* mw, std::uint32_t new_rkey, const ibv_mw_bind_info& info);
  // What follows it.
  void set_target(ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey);
  void set_pieces(std::span<const ibv_sge> pieces);
  void set_inline(std::span<const ibv_data_buf> buffers);
  // A call for what the card does not have.
  void refuse() {
    if (is_inside()) fail(EINVAL);
  }

 private:
  bool is_inside() const { return inside_ == std::this_thread::get_id(); }
  // The first error counts; nothing is posted then.
  void fail(int error) {
    if (error_ == 0) error_ = error;
  }
  struct Pending {
    SendRequest request;
    std::size_t first_piece = 0, pieces = 0;
    std::size_t first_inline_byte = 0, inline_bytes = 0;
    bool has_target = false;
  };

  Pending* last();
  bool accepts_data();
  int post_all();
  void leave();

  Qp& qp_;
  const std::uint64_t operations_;
  const std::uint64_t longest_message_;
  std::mutex section_;
  std::atomic<std::thread::id> inside_{};
  int error_ = 0;
  // Filled again and again: their store grows to what a program uses at most, bounded by the send queue.
  std::vector<std::unique_ptr<Pending>> pending_;
  std::size_t count_ = 0;
  std::vector<proto::Sge> pieces_;
  std::vector<std::byte> inline_bytes_;
  proto::SendWr nowhere_;  // what is written after an error
};

}  // namespace beeline::verbs::soft
