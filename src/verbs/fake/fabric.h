// Executes the work requests of all queue pairs of one fake provider, under one lock.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "verbs/fake/objects.h"

namespace beeline::verbs::fake {

class Fabric {
 public:
  explicit Fabric(FakeOptions::Delivery delivery);
  ~Fabric();

  // Guards every object and every function below that says "locked".
  std::mutex& mutex() { return mutex_; }

  // Locked.
  std::uint32_t add_qp(std::unique_ptr<Qp> qp);
  void remove_qp(Qp* qp);
  void add_mr(Mr* mr) { regions_[mr->lkey] = mr; }
  void remove_mr(Mr* mr) { regions_.erase(mr->lkey); }
  std::uint32_t new_key() { return next_key_ += 0x101; }
  Qp* find(std::uint32_t qpn) const;
  const std::map<std::uint32_t, std::unique_ptr<Qp>>& queue_pairs() const { return queue_pairs_; }

  // Locked. After a change of state, of reachability or of what is posted.
  void changed(Qp* qp);
  void enter_error(Qp* qp);
  void reset(Qp* qp);
  void set_paused(bool paused);

  // These take the lock.
  int post_send(Qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
  int post_recv(Qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
  int poll(Cq* cq, int count, ibv_wc* out);
  int arm(Cq* cq, bool solicited_only);

 private:
  // What a step did: nothing to do before something changes, or look at the next one.
  enum class Step : std::uint8_t { idle, again };

  int accept(Qp* qp, const ibv_send_wr& wr);
  void schedule(Qp* qp);
  void drain();
  void run();
  Step step(Qp* qp);
  Step execute(Qp* qp, Qp* peer, const SendOp& op);
  Step deliver(Qp* qp, Qp* peer, const SendOp& op);
  Step read(Qp* qp, Qp* peer, const SendOp& op);
  Step finish(Qp* qp, ibv_wc_status status);
  Step fail_both(Qp* qp, Qp* peer, ibv_wc_status status);
  void complete(Cq* cq, const CqEntry& entry, bool solicited);
  void complete_receive(Qp* qp, ibv_wc_status status, ibv_wc_opcode opcode, const SendOp& op);
  void flush(Qp* qp);

  const Mr* region(const ibv_pd* pd, std::uint32_t key, std::uint64_t address, std::uint64_t bytes,
                   int access) const;
  void corrupt_if_asked(Qp* qp);
  bool gather(Qp* qp, const SendOp& op);
  bool scatter(Qp* qp, const std::vector<ibv_sge>& sges, std::size_t bytes);

  std::mutex mutex_;
  std::condition_variable work_;
  std::map<std::uint32_t, std::unique_ptr<Qp>> queue_pairs_;
  std::map<std::uint32_t, Mr*> regions_;
  std::deque<Qp*> scheduled_;
  std::vector<std::byte> scratch_;
  std::uint32_t next_qpn_ = 0x11;
  std::uint32_t next_key_ = 0x1000;
  bool paused_ = false;
  bool stopping_ = false;
  std::thread thread_;  // only with threaded delivery
};

}  // namespace beeline::verbs::fake
