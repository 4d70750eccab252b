// What store client and server say to each other: frames of these types, one answer to each question.
#pragma once

#include <cstddef>
#include <cstdint>

namespace beeline::bootstrap {

constexpr std::uint32_t protocol_version = 1;
constexpr std::size_t max_group_name_bytes = 128;
constexpr std::size_t max_who_bytes = 128;
constexpr std::size_t store_max_key_bytes = 256;
constexpr std::size_t store_max_value_bytes = std::size_t{64} * 1024;
constexpr std::uint32_t store_max_message_bytes = store_max_key_bytes + store_max_value_bytes + 64;

namespace store_message {
constexpr std::uint8_t hello = 1;  // u32 version, text group, u32 size, u32 rank, text who -> done or refused
constexpr std::uint8_t set = 2;    // text key, bytes value -> done or refused
constexpr std::uint8_t get = 3;    // text key -> value or lost, when it is known
constexpr std::uint8_t done = 4;   // as refused
constexpr std::uint8_t refused = 5;  // u8 refusal, text why
constexpr std::uint8_t value = 6;    // bytes
constexpr std::uint8_t lost = 7;     // text: who will never set it
}  // namespace store_message

namespace refusal {
constexpr std::uint8_t final = 0;
constexpr std::uint8_t later = 1;  // worth another try
}  // namespace refusal

}  // namespace beeline::bootstrap
