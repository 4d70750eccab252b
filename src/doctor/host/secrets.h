// What may leave a host in a recording.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace beeline::doctor {

// Replaces passwords, tokens and keys by "[removed]": credentials in URLs, values of variables
// and options whose names say that they are secret, private keys, and tokens that services
// give a recognizable shape.
std::string without_secrets(std::string_view text);

// Of all environment variables only those that concern communication, without secrets.
bool may_record_variable(std::string_view name);

// Host names and addresses replaced, each always by the same other one. What addresses have
// in common (subnet, public or private, link-local, mapped into a GID) they keep in common, so
// that checks judge the recording as they would judge the host.
class Pseudonyms {
 public:
  explicit Pseudonyms(std::string host);
  std::string apply(std::string_view text);

 private:
  std::string replace(std::string_view token);
  std::uint32_t other_ipv4(std::uint32_t real);
  void change_ipv6(unsigned char* bytes);

  std::string host_;
  std::map<std::uint32_t, std::uint32_t> networks_;  // first half of an address -> another's
  std::uint32_t mask_;                               // for the second half
  unsigned char mask_bytes_[8];
};

}  // namespace beeline::doctor
