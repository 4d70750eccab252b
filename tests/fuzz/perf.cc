// What the two ends of `beeline perf` say beside the verbs. The input: a byte that says how the
// stream is cut into pieces, then the stream.
#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "input.h"
#include "perf/channel.h"
#include "stream.h"
#include "targets.h"

namespace beeline::fuzz {
namespace {

using perf::Message, perf::MessageType;

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// What parses is the message that its value would be sent as.
template <class Value>
bool check_round_trip(const Message& message, const Result<Value>& value) {
  if (!value) {
    BEELINE_CHECK(!value.error().message.empty());
    return false;
  }
  const Message again = perf::encode(*value);
  BEELINE_CHECK(again.type == message.type && again.payload == message.payload);
  return true;
}

void check_sizes(const perf::Plan& plan) {
  BEELINE_CHECK(plan.test != nullptr && plan.queue_pairs >= 1);
  BEELINE_CHECK(plan.slots() >= 1 && plan.slots() <= plan.tx_depth);
  BEELINE_CHECK(plan.buffer_bytes() / 2 / plan.queue_pairs / plan.slots() == plan.size_bytes);
  const auto sizes = plan.sizes();
  BEELINE_CHECK(!sizes.empty() && sizes.size() <= 64);
  BEELINE_CHECK(*std::max_element(sizes.begin(), sizes.end()) <= plan.size_bytes);
}

// Text comes out printable, so that only a second round is sure to be the same.
void check_verdict(const Message& message) {
  const auto value = perf::decode_verdict(message);
  if (!value) return;
  BEELINE_CHECK(is_printable(value->first));
  const Message again = perf::encode(*value);
  BEELINE_CHECK(again.payload.size() == message.payload.size());
  BEELINE_CHECK(perf::decode_verdict(again)->first == value->first);
}

void check_failure(const Message& message) {
  const std::string sentence = perf::decode_failure(message);
  BEELINE_CHECK(!sentence.empty() && is_printable(sentence));
  BEELINE_CHECK(perf::decode_failure(perf::encode_failure(sentence)) == sentence);
}

void check_message(const Message& message) {
  BEELINE_CHECK(message.payload.size() <= perf::max_payload_bytes);
  switch (message.type) {
    case MessageType::hello: {
      const auto hello = perf::decode_hello(message);
      if (check_round_trip(message, hello)) check_sizes(hello->plan);
      return;
    }
    case MessageType::endpoint:
      check_round_trip(message, perf::decode_endpoint(message));
      return;
    case MessageType::ready:
      check_round_trip(message, perf::decode_ready(message));
      return;
    case MessageType::round:
      check_round_trip(message, perf::decode_round(message));
      return;
    case MessageType::finished:
      check_round_trip(message, perf::decode_finished(message));
      return;
    case MessageType::verdict:
      return check_verdict(message);
    default:
      // Failures end a channel, so their text is tried with whatever else comes.
      return check_failure(message);
  }
}

struct Reading {
  std::vector<Message> messages;
  std::optional<Error> end;
};

// All that has come; false when the channel has ended.
bool read_what_came(perf::Channel& channel, Reading& reading) {
  for (;;) {
    auto message = channel.poll();
    if (!message) {
      BEELINE_CHECK(!message.error().message.empty());
      reading.end = message.error();
      return false;
    }
    if (!*message) return true;
    BEELINE_CHECK((*message)->type != MessageType::alive && (*message)->type != MessageType::failure);
    reading.messages.push_back(std::move(**message));
  }
}

Reading read_messages(Bytes bytes, std::uint8_t pieces) {
  Stream stream(bytes, pieces);
  perf::Channel channel(Descriptor(stream.take_descriptor()), "the peer");
  Reading reading;
  bool more = true;
  while (more && stream.send_piece()) more = read_what_came(channel, reading);
  stream.hang_up();
  if (more) read_what_came(channel, reading);
  return reading;
}

// How this stream ends a channel: by a claim of too many bytes, by a failure message, or by ending.
Errc end_of(Bytes stream) {
  constexpr std::size_t header_bytes = 8;
  while (stream.size() >= header_bytes) {
    const std::size_t length = load_be32(stream.data());
    if (length > perf::max_payload_bytes) return Errc::protocol;
    if (stream.size() < header_bytes + length) break;
    if (load_be16(stream.data() + 4) == static_cast<std::uint16_t>(MessageType::failure))
      return Errc::aborted;
    stream = stream.subspan(header_bytes + length);
  }
  return Errc::peer_lost;
}

bool same(const Message& a, const Message& b) { return a.type == b.type && a.payload == b.payload; }

}  // namespace

void fuzz_perf(Bytes bytes) {
  Input input(bytes);
  const std::uint8_t pieces = input.u8();
  const Reading reading = read_messages(input.rest(), pieces);
  BEELINE_CHECK(reading.end && reading.end->code == end_of(input.rest()));
  const Reading in_large_pieces = read_messages(input.rest(), large_pieces);
  BEELINE_CHECK(std::equal(reading.messages.begin(), reading.messages.end(), in_large_pieces.messages.begin(),
                           in_large_pieces.messages.end(), same));
  BEELINE_CHECK(reading.end->code == in_large_pieces.end->code);
  for (const Message& message : reading.messages) check_message(message);
}

}  // namespace beeline::fuzz
