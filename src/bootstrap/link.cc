#include "bootstrap/link.h"

#include "bootstrap/record.h"

namespace beeline::bootstrap {
namespace {

namespace message {
constexpr std::uint8_t contribution = 1;  // the bytes
constexpr std::uint8_t failure = 2;       // u8 code, text
constexpr std::uint8_t goodbye = 3;       // nothing
}  // namespace message

constexpr std::size_t max_queued_contributions = 2;

}  // namespace

Link::Link(Descriptor fd, Identity identity)
    : fd_(std::move(fd)), identity_(std::move(identity)), reader_(max_contribution_bytes) {
  watch_for_death(fd_.get());
}

void Link::send_contribution(Bytes mine) {
  if (open()) outbox_.add(message::contribution, mine);
}

void Link::send_failure(const Error& error) {
  const std::string text = error.message.substr(0, max_failure_text_bytes);
  if (open())
    outbox_.add(message::failure, RecordWriter{}.u8(static_cast<std::uint8_t>(error.code)).text(text).view());
  flush();
}

void Link::send_goodbye() {
  if (open()) outbox_.add(message::goodbye, {});
  flush();
}

void Link::flush() {
  // A failed send says less than the read that follows: what the peer sent before it died is still there.
  if (open() && !outbox_.flush(fd_.get())) outbox_ = {};
}

void Link::pump() {
  while (open()) {
    Frame frame;
    const auto outcome = reader_.read(fd_.get(), frame);
    if (!outcome || *outcome == ReadOutcome::closed) return end(!goodbye_);
    if (*outcome == ReadOutcome::would_block) return;
    handle(std::move(frame));
  }
}

void Link::handle(Frame frame) {
  if (frame.type == message::contribution && contributions_.size() < max_queued_contributions && !goodbye_) {
    contributions_.push_back(std::move(frame.body));
  } else if (frame.type == message::failure) {
    RecordReader reader(frame.body);
    const auto code = reader.u8();
    const auto text = printable(reader.text(max_failure_text_bytes), max_failure_text_bytes);
    if (!reader.complete() || code > static_cast<std::uint8_t>(Errc::internal)) return end(true);
    if (!reported_) reported_ = Error{static_cast<Errc>(code), text};
  } else if (frame.type == message::goodbye && frame.body.empty()) {
    goodbye_ = true;
  } else {
    end(true);  // nonsense: as good as gone
  }
}

void Link::end(bool as_broken) {
  closed_ = true;
  broken_ = as_broken;
  outbox_ = {};
}

std::optional<std::vector<std::byte>> Link::take_contribution() {
  if (contributions_.empty()) return std::nullopt;
  auto first = std::move(contributions_.front());
  contributions_.pop_front();
  return first;
}

}  // namespace beeline::bootstrap
