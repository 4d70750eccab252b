#include <algorithm>
#include <thread>

#include "bootstrap/record.h"
#include "bootstrap/store_protocol.h"
#include "bootstrap/tcp_store.h"

namespace beeline::bootstrap {
namespace {

constexpr Duration retry_pause = 50ms;
constexpr Duration unknown_host_patience = 10s;  // a name may appear late in the DNS, but not that late

bool worth_another_try(const Error& error) {
  return error.code == Errc::io || error.code == Errc::timed_out || error.code == Errc::peer_lost ||
         error.code == Errc::not_found || error.code == Errc::in_use;
}

}  // namespace

StoreClient::StoreClient(Descriptor fd, std::string where)
    : fd_(std::move(fd)), where_(std::move(where)), reader_(store_max_message_bytes) {}

Result<std::unique_ptr<StoreClient>> StoreClient::connect(const Greeting& greeting, const HostPort& server,
                                                          const Deadline& deadline) {
  const auto where = fmt::format("{}:{}", server.host, server.port);
  const Deadline name_deadline = deadline.sooner(unknown_host_patience);
  Error last{Errc::timed_out, "no answer"};
  for (bool first = true; first || !deadline.passed(); first = false) {
    const auto addresses = resolve(server.host);
    if (!addresses && name_deadline.passed()) return tl::unexpected(addresses.error());
    for (const IpAddress& address : addresses.value_or(std::vector<IpAddress>{})) {
      auto client = greet_server(greeting, {address, server.port}, deadline);
      if (client || !worth_another_try(client.error())) return client;
      last = client.error();
    }
    std::this_thread::sleep_for(std::min<Duration>(retry_pause, std::max(deadline.left(), Duration::zero())));
  }
  return fail(Errc::timed_out, "rank {} of group '{}' found no rank 0 at {} in time ({})",
              greeting.rank.value, greeting.group, where, last.message);
}

Result<std::unique_ptr<StoreClient>> StoreClient::greet_server(const Greeting& greeting,
                                                               const Endpoint& endpoint,
                                                               const Deadline& deadline) {
  BEELINE_TRY(Descriptor fd, connect_to(endpoint, deadline.sooner(5s)));
  watch_for_death(fd.get());
  std::unique_ptr<StoreClient> client(new StoreClient(std::move(fd), to_string(endpoint)));
  RecordWriter hello;
  hello.u32(protocol_version).text(greeting.group).u32(static_cast<std::uint32_t>(greeting.size));
  hello.u32(static_cast<std::uint32_t>(greeting.rank.value)).text(greeting.who);
  // Patient: leaving after rank 0 has noted us would look like a death.
  auto asked = client->ask(store_message::hello, hello.view(), deadline.sooner(30s));
  if (!asked) return fail(asked.error().code, "{}: {}", client->where_, asked.error().message);
  const Frame answer = std::move(*asked);
  if (answer.type == store_message::done) return client;
  RecordReader reader(answer.body);
  const auto kind = reader.u8();
  const std::string why = printable(reader.text(1024), 1024);
  if (answer.type != store_message::refused || !reader.complete())
    return fail(Errc::protocol, "what answers at {} is not rank 0 of a Beeline group", client->where_);
  return fail(kind == refusal::later ? Errc::in_use : Errc::invalid_argument, "{}", why);
}

Result<Frame> StoreClient::ask(std::uint8_t type, Bytes body, const Deadline& deadline) {
  BEELINE_TRY_VOID(write_frame(fd_.get(), type, body, deadline));
  return read_frame(fd_.get(), reader_, deadline);
}

Result<void> StoreClient::set(const std::string& key, Bytes value) {
  auto answer = ask(store_message::set, RecordWriter{}.text(key).bytes(value).view(), Deadline(30s));
  if (!answer) return fail(answer.error().code, "rank 0's store at {}: {}", where_, answer.error().message);
  if (answer->type == store_message::done) return {};
  RecordReader reader(answer->body);
  (void)reader.u8();
  return fail(Errc::protocol, "rank 0's store at {} refused a value: {}", where_,
              printable(reader.text(1024), 1024));
}

Result<std::vector<std::byte>> StoreClient::get(const std::string& key, Duration timeout) {
  auto answer = ask(store_message::get, RecordWriter{}.text(key).view(), Deadline(timeout));
  if (!answer && answer.error().code == Errc::timed_out)
    return fail(Errc::timed_out, "the key {} did not appear", key);
  if (!answer)
    return fail(Errc::peer_lost, "rank 0, or the connection to its store at {}, is gone ({})", where_,
                answer.error().message);
  RecordReader reader(answer->body);
  if (answer->type == store_message::lost)
    return fail(Errc::peer_lost, "{}", printable(reader.text(1024), 1024));
  const Bytes value = reader.bytes(store_max_value_bytes);
  if (answer->type != store_message::value || !reader.complete())
    return fail(Errc::protocol, "rank 0's store at {} gave a malformed answer", where_);
  return std::vector<std::byte>(value.begin(), value.end());
}

Result<IpAddress> StoreClient::local_address() const {
  BEELINE_TRY(const Endpoint endpoint, local_endpoint(fd_.get()));
  return endpoint.address;
}

}  // namespace beeline::bootstrap
