// The listener's half of the UDP tests: a socket on each address, a thread that answers
// those who know the secret.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "doctor/peer/datagram.h"
#include "doctor/peer/rail.h"

namespace beeline::doctor::peer {

struct EchoDoor {
  IpAddress address;
  std::uint16_t port = 0;
};

class EchoServer {
 public:
  // On the wanted port where it is free, else on any. Only `clients` are answered, and not
  // more than a bounded number of bytes: nobody is to be flooded through us.
  EchoServer(const HostFacts& host, std::uint16_t wanted_port, std::uint64_t secret,
             std::vector<IpAddress> clients);
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

  std::vector<EchoDoor> doors() const;

 private:
  struct Socket {
    Descriptor fd;
    EchoDoor door;
    unsigned interface = 0;
  };
  void open(const IpAddress& address, std::uint16_t port, unsigned interface);
  void serve();
  void answer(Socket& socket);

  std::uint64_t secret_;
  std::vector<IpAddress> clients_;
  std::vector<Socket> sockets_;
  std::vector<std::byte> room_, reply_;
  std::uint64_t bytes_left_;
  Descriptor stop_;
  std::thread thread_;
};

}  // namespace beeline::doctor::peer
