// How the ranks of a group find and authenticate each other.
//
// Rank 0 publishes under "beeline/NAME/0" a fresh group id, its addresses and two secrets;
// the others then publish theirs under "beeline/NAME/ID/RANK". Rank i connects to every
// j < i: it shows j's knock secret and gets j's answer secret back, so both have read or
// written the store. A key that an earlier group left behind leads to a listener that is
// gone, so rank 0's key is read again until somebody answers there; all others lie under the fresh id.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/mesh.h"
#include "bootstrap/secret.h"
#include "bootstrap/socket.h"

namespace beeline::bootstrap {

// What a rank publishes.
struct Entry {
  std::uint64_t group_id = 0;
  Secret knock{}, answer{};
  Identity identity;
  std::string host_key;  // equal for processes that share a loopback interface
  std::vector<Endpoint> endpoints;
};
std::vector<std::byte> encode_entry(const Entry& entry);
Result<Entry> decode_entry(Bytes bytes);

// This process, and this host with this network namespace.
Identity own_identity();
std::string own_host_key();
// The addresses by which other processes may reach this one: all but link-local ones, loopback last.
Result<std::vector<IpAddress>> own_addresses();

// Asked while waiting: why the group cannot become complete any more, if so.
using Trouble = std::function<std::optional<Error>()>;

// Connects everybody to everybody, over listeners on `addresses`. On failure the ranks that are
// connected already are told why.
Result<std::unique_ptr<Mesh>> connect_all(const GroupOptions& options, Store& store,
                                          const std::vector<IpAddress>& addresses, const Trouble& trouble);

}  // namespace beeline::bootstrap
