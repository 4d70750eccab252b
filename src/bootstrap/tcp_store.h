// The key-value store that meet_at runs on rank 0 while a group forms, and its client on
// the other ranks.
//
// Whoever reaches the port may read and write the store (RoCE v2 has no authentication
// either; docs/security.md). What a stranger cannot do is end or stall it: connections
// that do not greet are bounded in number and time, everything stored is bounded in size.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "bootstrap/frame.h"
#include "bootstrap/group.h"

namespace beeline::bootstrap {

// Which group a client means, and who it is.
struct Greeting {
  std::string group;
  int size = 1;
  Rank rank{0};
  std::string who;  // "pid 4711 on node-a"
};

class StoreServer final : public Store {
 public:
  // Serves `greeting.group` on every endpoint, from a thread of its own.
  static Result<std::unique_ptr<StoreServer>> start(const Greeting& greeting,
                                                    const std::vector<Endpoint>& endpoints);
  ~StoreServer() override;

  // Rank 0's own access.
  Result<void> set(const std::string& key, Bytes value) override;
  Result<std::vector<std::byte>> get(const std::string& key, Duration timeout) override;
  // Why the group cannot become complete any more.
  std::optional<Error> trouble();

 private:
  struct Client {
    Client(Descriptor connection, Deadline greeting_deadline);
    Descriptor fd;
    FrameReader reader;
    Outbox outbox;
    Deadline greet_by;
    Rank rank{-1};  // once it has greeted
    std::string who;
    std::string wanted_key;  // a get that waits
    bool finished = false;
  };

  StoreServer(const Greeting& greeting, std::vector<Descriptor> listeners, Descriptor wake);
  void serve();
  void accept_clients(int listener);
  void pump(Client& client);
  void handle(Client& client, const Frame& frame);
  void greet(Client& client, Bytes body);
  void answer_waiting();
  void note_leaving(const Client& client);
  void drop_finished();
  Result<void> put(const std::string& key, Bytes value);
  void stir() const;

  const Greeting greeting_;
  std::vector<Descriptor> listeners_;
  Descriptor wake_;
  std::vector<std::unique_ptr<Client>> clients_;  // the thread's
  std::mutex mutex_;                              // guards what follows
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::byte>> values_;
  std::size_t stored_bytes_ = 0;
  std::string lost_;  // a rank that left too early
  bool stopping_ = false;
  std::thread thread_;
};

class StoreClient final : public Store {
 public:
  // Tries again until the server is there, or until the deadline.
  static Result<std::unique_ptr<StoreClient>> connect(const Greeting& greeting, const HostPort& server,
                                                      const Deadline& deadline);

  Result<void> set(const std::string& key, Bytes value) override;
  Result<std::vector<std::byte>> get(const std::string& key, Duration timeout) override;

  // By which of this host's addresses the server is reached.
  Result<IpAddress> local_address() const;

 private:
  StoreClient(Descriptor fd, std::string where);
  static Result<std::unique_ptr<StoreClient>> greet_server(const Greeting& greeting, const Endpoint& endpoint,
                                                           const Deadline& deadline);
  Result<Frame> ask(std::uint8_t type, Bytes body, const Deadline& deadline);

  Descriptor fd_;
  std::string where_;
  FrameReader reader_;
};

}  // namespace beeline::bootstrap
