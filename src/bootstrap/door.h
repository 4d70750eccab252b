// The door that a rank keeps open while its group forms, and knocking at another's.
//
//   visitor -> knock    u64 group id, the host's knock secret, u32 rank, u32 pid, text host
//   host    -> answer   the host's answer secret
//   visitor -> enter    nothing: only now does the host count the visitor
//
// A stranger who connects, speaks garbage or says nothing is dropped: no more than a few
// dozen are kept at a time, for a few seconds and a few hundred bytes each.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/frame.h"
#include "bootstrap/group.h"
#include "bootstrap/link.h"

namespace beeline::bootstrap {

struct Entry;

// A rank that has come in.
struct Arrival {
  Rank rank{-1};
  Descriptor connection;
  Identity identity;
};

class Door {
 public:
  // Listens on every address, at ports that the kernel chooses. `self` outlives the door.
  static Result<std::unique_ptr<Door>> open(const std::vector<IpAddress>& addresses,
                                            const GroupOptions& options, const Entry& self);
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }

  // Waits until somebody came in, `other` is readable, or the deadline; gives those who came in.
  std::vector<Arrival> wait(int other, const Deadline& deadline);

 private:
  struct Visitor {
    explicit Visitor(Descriptor connection);
    Descriptor connection;
    FrameReader reader;
    Deadline patience;
    Rank rank{-1};  // after a right knock
    Identity identity;
    bool entered = false, dismissed = false;
  };

  Door(const GroupOptions& options, const Entry& self) : options_(options), self_(self) {}
  void accept_from(int listener);
  void listen_to(Visitor& visitor);
  bool knocks_right(Visitor& visitor, Bytes body) const;

  const GroupOptions options_;
  const Entry& self_;
  std::vector<Descriptor> listeners_;
  std::vector<Endpoint> endpoints_;
  std::vector<std::unique_ptr<Visitor>> visitors_;
};

// Tries all addresses of `host` in turn, once each. Gives the authenticated connection.
Result<Descriptor> knock_at(const Entry& host, const Entry& self, Rank self_rank, const Deadline& deadline);

}  // namespace beeline::bootstrap
