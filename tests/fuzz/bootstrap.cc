// The control connections of a group and its store. The input: a byte that says how the stream
// is cut into pieces, then the stream.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/link.h"
#include "bootstrap/meeting.h"
#include "bootstrap/record.h"
#include "bootstrap/store_protocol.h"
#include "input.h"
#include "stream.h"
#include "targets.h"

namespace beeline::fuzz {
namespace {

using namespace bootstrap;

constexpr std::uint32_t max_body_bytes = 1024;

bool is_printable(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

// --- Frames

struct Reading {
  std::vector<std::byte> again;  // what was read, emitted
  std::vector<Frame> frames;
  bool refused = false, in_the_middle = false;
};

// All that has come; false when nothing more will.
bool read_what_came(FrameReader& reader, int fd, Reading& reading) {
  for (;;) {
    Frame frame;
    const auto outcome = reader.read(fd, frame);
    reading.refused = !outcome;
    if (!outcome || *outcome == ReadOutcome::closed) return false;
    if (*outcome == ReadOutcome::would_block) return true;
    BEELINE_CHECK(frame.body.size() <= max_body_bytes);
    const auto emitted = encode_frame(frame.type, frame.body);
    reading.again.insert(reading.again.end(), emitted.begin(), emitted.end());
    reading.frames.push_back(std::move(frame));
  }
}

Reading read_frames(Bytes bytes, std::uint8_t pieces) {
  Stream stream(bytes, pieces);
  const Descriptor far(stream.take_descriptor());
  FrameReader reader(max_body_bytes);
  Reading reading;
  bool more = true;
  while (more && stream.send_piece()) more = read_what_came(reader, far.get(), reading);
  stream.hang_up();
  if (more) read_what_came(reader, far.get(), reading);
  reading.in_the_middle = reader.in_the_middle();
  return reading;
}

// Whether what begins here could be a frame, as far as it goes.
bool may_be_frame(Bytes bytes) {
  if (bytes.size() < frame_header_bytes) return true;
  return load_be16(bytes.data()) == 0xBEE1 && load_u8(bytes.data() + 3) == 0 &&
         load_be32(bytes.data() + 4) <= max_body_bytes;
}

// The frames are the stream, byte for byte, however it was cut, up to what can be none.
Reading check_frames(Bytes bytes, std::uint8_t pieces) {
  Reading reading = read_frames(bytes, pieces);
  BEELINE_CHECK(reading.again.size() <= bytes.size());
  BEELINE_CHECK(std::equal(reading.again.begin(), reading.again.end(), bytes.begin()));
  if (!reading.refused) BEELINE_CHECK(reading.in_the_middle == (reading.again.size() < bytes.size()));
  BEELINE_CHECK(reading.refused != may_be_frame(bytes.subspan(reading.again.size())));
  const Reading in_large_pieces = read_frames(bytes, large_pieces);
  BEELINE_CHECK(in_large_pieces.again == reading.again && in_large_pieces.refused == reading.refused);
  return reading;
}

// --- Links

void check_report(const Error& report) {
  BEELINE_CHECK(!name(report.code).empty());
  BEELINE_CHECK(report.message.size() <= max_failure_text_bytes && is_printable(report.message));
  const auto [one, other] = socket_pair();
  Link teller(Descriptor(one), {}), listener(Descriptor(other), {});
  teller.send_failure(report);
  listener.pump();
  BEELINE_CHECK(listener.reported() && listener.reported()->code == report.code);
  BEELINE_CHECK(listener.reported()->message == report.message);
}

// A peer says what it likes: what is kept of it is bounded, and an end is an end.
void check_link(Bytes bytes, std::uint8_t pieces) {
  Stream stream(bytes, pieces);
  Link link(Descriptor(stream.take_descriptor()), {});
  std::size_t contributed_bytes = 0;
  const auto take = [&] {
    std::size_t queued = 0;
    for (; const auto value = link.take_contribution(); ++queued) contributed_bytes += value->size();
    BEELINE_CHECK(queued <= 2);
  };
  for (std::uint8_t turn = 0; link.open() && stream.send_piece(); ++turn) {
    link.pump();
    if ((turn & 1) != 0) take();
  }
  stream.hang_up();
  link.pump();
  BEELINE_CHECK(!link.open() && !link.has_unsent());
  BEELINE_CHECK(link.broken() || link.said_goodbye());
  take();
  BEELINE_CHECK(contributed_bytes <= bytes.size());
  if (link.reported()) check_report(*link.reported());
}

// --- Records

void check_entry(Bytes bytes) {
  const auto entry = decode_entry(bytes);
  if (!entry) {
    BEELINE_CHECK(entry.error().code == Errc::protocol);
    return;
  }
  BEELINE_CHECK(entry->endpoints.size() <= 32 && is_printable(entry->identity.host));
  BEELINE_CHECK(!decode_entry(bytes.first(bytes.size() - 1)));
  const auto again = decode_entry(encode_entry(*entry));
  BEELINE_CHECK(again.has_value());
  BEELINE_CHECK(again->group_id == entry->group_id && again->knock == entry->knock &&
                again->answer == entry->answer && again->host_key == entry->host_key &&
                again->endpoints == entry->endpoints);
  BEELINE_CHECK(again->identity.pid == entry->identity.pid && again->identity.host == entry->identity.host);
}

// The fields of a message, a letter each: a u8, a u16, a u32, a u64, bytes, text.
struct Layout {
  std::uint8_t type;
  std::string_view fields;
};
constexpr std::array layouts{
    Layout{store_message::hello, "4t44t"},
    Layout{store_message::set, "tb"},
    Layout{store_message::get, "t"},
    Layout{store_message::done, "1t"},
    Layout{store_message::refused, "1t"},
    Layout{store_message::value, "b"},
    Layout{store_message::lost, "t"},
    Layout{8, "8b44t"},  // a knock at a door
    Layout{9, "b2b2"},   // endpoints, as entries have them
};
constexpr std::size_t field_limit = 300;

void copy_field(char field, RecordReader& in, RecordWriter& out) {
  switch (field) {
    case '1':
      out.u8(in.u8());
      return;
    case '2':
      out.u16(in.u16());
      return;
    case '4':
      out.u32(in.u32());
      return;
    case '8':
      out.u64(in.u64());
      return;
    case 'b': {
      const Bytes value = in.bytes(field_limit);
      BEELINE_CHECK(value.size() <= field_limit);
      out.bytes(value);
      return;
    }
    default: {
      const std::string value = in.text(field_limit);
      BEELINE_CHECK(value.size() <= field_limit);
      BEELINE_CHECK(printable(value, 16).size() <= 16 && is_printable(printable(value, 16)));
      out.text(value);
    }
  }
}

// A complete message is its fields and nothing else.
void check_record(const Frame& frame) {
  for (const Layout& layout : layouts) {
    if (layout.type != frame.type) continue;
    RecordReader in(frame.body);
    RecordWriter out;
    for (const char field : layout.fields) copy_field(field, in, out);
    if (in.complete()) BEELINE_CHECK(out.take() == frame.body);
    while (in.complete()) BEELINE_CHECK(in.u8() == 0);  // a read past the end gives zero and is remembered
  }
}

}  // namespace

void fuzz_bootstrap(Bytes bytes) {
  Input input(bytes);
  const std::uint8_t pieces = input.u8();
  const Reading reading = check_frames(input.rest(), pieces);
  for (const Frame& frame : reading.frames) {
    check_record(frame);
    check_entry(frame.body);
  }
  check_entry(input.rest());
  check_link(input.rest(), pieces);
}

}  // namespace beeline::fuzz
