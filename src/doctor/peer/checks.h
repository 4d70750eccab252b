// What the measurements mean: the checks of `beeline doctor --peer`.
#pragma once

#include <span>

#include "doctor/host/check.h"
#include "doctor/peer/measure.h"

namespace beeline::doctor::peer {

// The rows, for --list, --explain and the documentation. Their results come from judge().
std::span<const Check> checks();
const Check* find_peer_check(std::string_view id);
std::string list_peer_checks();
std::string peer_checks_as_markdown();

// A result of each row, of the group "peer HOST".
std::vector<doctor::Result> judge(const Measured& measured, const std::string& host);
// What the reader of those must know first, where nothing could be tested: why. Else empty.
std::string remark(const Measured& measured, const std::string& host);

// How the peer was to be reached.
struct Way {
  bool ssh = false;
  std::uint16_t port = 0;  // without ssh
};
// The same results where the peer could not be talked to.
std::vector<doctor::Result> unreached(const Error& error, const std::string& host, const Way& way);

}  // namespace beeline::doctor::peer
