#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <random>

#include "doctor/host/devices.h"
#include "doctor/host/secrets.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

bool hexadecimal(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

// COUNT groups of WIDTH hexadecimal digits between colons
bool groups_of(std::string_view token, std::size_t count, std::size_t width) {
  if (token.size() != count * width + count - 1) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (!hexadecimal(token.substr(i * (width + 1), width))) return false;
    if (i + 1 < count && token[i * (width + 1) + width] != ':') return false;
  }
  return true;
}

bool part_of_address(char c) { return hexadecimal({&c, 1}) || c == ':' || c == '.'; }
bool part_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool kept(std::uint32_t address) {
  const auto first = address >> 24U;
  return first == 0 || first == 127 || first >= 224 || address >> 16U == 0xA9FE;
}

}  // namespace

Pseudonyms::Pseudonyms(std::string host) : host_(std::move(host)) {
  std::random_device random;
  mask_ = random() & 0xFFFFU;
  for (auto& byte : mask_bytes_) byte = static_cast<unsigned char>(random());
}

// An exclusive-or keeps which bits two addresses have in common: subnets stay subnets.
std::uint32_t Pseudonyms::other_ipv4(std::uint32_t real) {
  if (kept(real)) return real;
  const auto next = static_cast<std::uint32_t>(networks_.size()) & 0xFFU;
  const auto [network, fresh] =
      networks_.emplace(real >> 16U, (public_address(real) ? 11U : 10U) << 8U | next);
  return network->second << 16U | ((real ^ mask_) & 0xFFFFU);
}

void Pseudonyms::change_ipv6(unsigned char* bytes) {
  static const unsigned char zero[16] = {}, loopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (std::memcmp(bytes, zero, 16) == 0 || std::memcmp(bytes, loopback, 16) == 0 || bytes[0] == 0xFF) return;
  if (std::memcmp(bytes, mapped, 12) == 0) {
    std::uint32_t address = 0;
    std::memcpy(&address, bytes + 12, 4);
    address = htonl(other_ipv4(ntohl(address)));
    std::memcpy(bytes + 12, &address, 4);
    return;
  }
  const bool link_local = bytes[0] == 0xFE && (bytes[1] & 0xC0U) == 0x80;
  for (std::size_t i = 0; i < 8; ++i) bytes[8 + i] ^= mask_bytes_[i];
  // A global prefix names its owner.
  if (!link_local && (bytes[0] & 0xFEU) != 0xFC)
    for (std::size_t i = 2; i < 8; ++i) bytes[i] ^= mask_bytes_[i];
}

std::string Pseudonyms::replace(std::string_view token) {
  if (const auto address = parse_ipv4(token)) {
    const auto other = other_ipv4(*address);
    return fmt::format("{}.{}.{}.{}", other >> 24U, other >> 16U & 0xFFU, other >> 8U & 0xFFU, other & 0xFFU);
  }
  const auto colon = token.find(':');
  if (colon == std::string_view::npos) return std::string(token);
  if (parse_ipv4(token.substr(0, colon)))
    return replace(token.substr(0, colon)) + std::string(token.substr(colon));
  if (groups_of(token, 6, 2)) {  // a MAC address: its maker stays, the rest changes
    std::string text(token.substr(0, 8));
    for (std::size_t i = 3; i < 6; ++i)
      text += fmt::format(
          ":{:02x}", (std::stoul(std::string(token.substr(3 * i, 2)), nullptr, 16) ^ mask_bytes_[i]) & 0xFFU);
    return token == "00:00:00:00:00:00" || token == "ff:ff:ff:ff:ff:ff" ? std::string(token) : text;
  }
  if (token.size() == 13 && colon == 8 && hexadecimal(token.substr(0, 8)) &&
      hexadecimal(token.substr(9)))  // /proc/net/udp
    return token.substr(0, 8) == "00000000" || token.substr(0, 8) == "0100007F"
               ? std::string(token)
               : "0A0A0A0A" + std::string(token.substr(8));
  if (groups_of(token, 4, 4)) {  // a GUID
    if (token == "0000:0000:0000:0000") return std::string(token);
    std::string text;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto mask = static_cast<unsigned>(mask_bytes_[2 * i] << 8U | mask_bytes_[2 * i + 1]);
      text += fmt::format("{}{:04x}", i == 0 ? "" : ":",
                          std::stoul(std::string(token.substr(5 * i, 4)), nullptr, 16) ^ mask);
    }
    return text;
  }
  unsigned char bytes[16];
  if (std::count(token.begin(), token.end(), ':') < 2 ||
      ::inet_pton(AF_INET6, std::string(token).c_str(), bytes) != 1)
    return std::string(token);
  change_ipv6(bytes);
  if (groups_of(token, 8, 4)) {  // as sysfs writes a GID
    std::string text;
    for (std::size_t i = 0; i < 16; i += 2)
      text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
    return text;
  }
  char printed[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET6, bytes, printed, sizeof printed);
  return printed;
}

std::string Pseudonyms::apply(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const bool word_start = at == 0 || !part_of_word(text[at - 1]);
    if (word_start && host_.size() > 2 && text.substr(at, host_.size()) == host_ &&
        (at + host_.size() == text.size() || !part_of_word(text[at + host_.size()]))) {
      result += "host-1";
      at += host_.size();
      continue;
    }
    if (!word_start || !part_of_address(text[at])) {
      result += text[at++];
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && part_of_address(text[end])) ++end;
    if (end < text.size() && part_of_word(text[end])) {  // "feedback": a word, not an address
      while (at < text.size() && part_of_word(text[at])) result += text[at++];
      if (at < end) result += text[at++];
      continue;
    }
    std::size_t last = end;
    while (last > at + 1 && (text[last - 1] == '.' || (text[last - 1] == ':' && text[last - 2] != ':')))
      --last;
    result += replace(text.substr(at, last - at));
    result += text.substr(last, end - last);
    at = end;
  }
  return result;
}

}  // namespace beeline::doctor
