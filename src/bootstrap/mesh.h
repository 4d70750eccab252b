// The group as its control connections: one link per peer, no thread of its own. What
// peers send is read when somebody calls poll_failure or all_gather; wait_descriptor
// (an epoll descriptor over all links) says when that is worth it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "bootstrap/group.h"
#include "bootstrap/link.h"

namespace beeline::bootstrap {

class Mesh final : public Group {
 public:
  static Result<std::unique_ptr<Mesh>> create(const GroupOptions& options, Identity self);
  ~Mesh() override;

  void add_link(Rank rank, Descriptor fd, Identity identity);
  bool connected(Rank rank) const;

  Rank rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  Result<std::vector<std::vector<std::byte>>> all_gather(Bytes mine, Duration timeout) override;
  void broadcast_failure(const Error& error) override;
  std::optional<PeerFailure> poll_failure() override;
  int wait_descriptor() const override { return epoll_.get(); }
  std::string describe(Rank rank) const override;
  void abandon_after_fork() override;

 private:
  Mesh(const GroupOptions& options, Identity self, Descriptor epoll);
  void pump_all();
  void note_failures();
  bool collect(std::vector<std::vector<std::byte>>& out, std::vector<bool>& have, std::optional<Rank>& left);
  void wait_for_traffic(const Deadline& deadline);
  std::string describe_missing(const std::vector<bool>& have) const;
  std::string name_of(Rank rank) const;  // describe, with the lock held
  void say_goodbye();

  const GroupOptions options_;
  const Identity self_;
  std::mutex gathering_;      // one all_gather at a time
  mutable std::mutex mutex_;  // guards what follows
  Descriptor epoll_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank; none for ourselves
  std::optional<PeerFailure> failure_;        // the first one stays
  bool told_ = false;                         // broadcast_failure has spoken
  bool abandoned_ = false;
};

// "rank 3", "ranks 1, 2", …
std::string list_ranks(const std::vector<Rank>& ranks);

}  // namespace beeline::bootstrap
