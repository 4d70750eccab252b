// The options of `beeline doctor` that concern another host: --peer, --listen.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace beeline::cli {

struct PeerArguments {
  std::vector<std::string> hosts;
  std::uint16_t port = 0;  // of --peer; 0: the usual one
  bool ssh = false;
  std::string remote_program = "beeline";
  std::uint16_t listen_port = 0;
  CLI::Option* listen = nullptr;
  bool stdio = false;  // the listener that --ssh starts: it speaks over its standard input and output

  bool wanted() const { return !hosts.empty() || listens(); }
  bool listens() const { return stdio || (listen != nullptr && listen->count() > 0); }
};

void add_peer_options(CLI::App& command, PeerArguments& typed);

// `facts`: what only the composition root may read (environment, hostname).
void run_listener(const PeerArguments& typed,
                  const std::function<std::map<std::string, std::string>()>& facts);

// How the report is shown is the caller's.
struct PeerView {
  bool json = false, colour = false, verbose = false;
};
// Ends with the status of the worst finding.
void examine_peers(const PeerArguments& typed, const PeerView& view,
                   const std::function<std::map<std::string, std::string>()>& facts);

}  // namespace beeline::cli
