#include "bootstrap/tcp_store.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "bootstrap/record.h"
#include "bootstrap/store_protocol.h"

namespace beeline::bootstrap {
namespace {

constexpr std::size_t max_strangers = 64;           // connections that have not greeted yet
constexpr std::size_t max_outbox_bytes = 1u << 20;  // answers that a client does not fetch
constexpr std::size_t max_stored_bytes = 64u << 20;
constexpr Duration greeting_time = 5s;

}  // namespace

StoreServer::Client::Client(Descriptor connection, Deadline greeting_deadline)
    : fd(std::move(connection)), reader(store_max_message_bytes), greet_by(greeting_deadline) {}

Result<std::unique_ptr<StoreServer>> StoreServer::start(const Greeting& greeting,
                                                        const std::vector<Endpoint>& endpoints) {
  std::vector<Descriptor> listeners;
  for (const Endpoint& endpoint : endpoints) {
    BEELINE_TRY(Descriptor listener, listen_on(endpoint));
    listeners.push_back(std::move(listener));
  }
  Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno(errno, "cannot create an eventfd");
  std::unique_ptr<StoreServer> server(new StoreServer(greeting, std::move(listeners), std::move(wake)));
  server->thread_ = std::thread([raw = server.get()] { raw->serve(); });
  return server;
}

StoreServer::StoreServer(const Greeting& greeting, std::vector<Descriptor> listeners, Descriptor wake)
    : greeting_(greeting), listeners_(std::move(listeners)), wake_(std::move(wake)) {}

StoreServer::~StoreServer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stir();
  thread_.join();
}

void StoreServer::stir() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

Result<void> StoreServer::put(const std::string& key, Bytes value) {
  const std::lock_guard lock(mutex_);
  if (key.size() > store_max_key_bytes || value.size() > store_max_value_bytes)
    return fail(Errc::invalid_argument, "the store takes keys of {} and values of {} bytes at most",
                store_max_key_bytes, store_max_value_bytes);
  auto& slot = values_[key];
  const std::size_t total = stored_bytes_ - slot.size() + value.size() + (slot.empty() ? key.size() : 0);
  if (total > max_stored_bytes)
    return fail(Errc::resource_exhausted, "the store is full ({} bytes)", stored_bytes_);
  stored_bytes_ = total;
  slot.assign(value.begin(), value.end());
  changed_.notify_all();
  return {};
}

Result<void> StoreServer::set(const std::string& key, Bytes value) {
  BEELINE_TRY_VOID(put(key, value));
  stir();
  return {};
}

Result<std::vector<std::byte>> StoreServer::get(const std::string& key, Duration timeout) {
  std::unique_lock lock(mutex_);
  const auto there = [&] { return values_.count(key) > 0; };
  if (!changed_.wait_for(lock, std::min<Duration>(timeout, 24h), there))
    return fail(Errc::timed_out, "the key {} did not appear", key);
  return values_[key];
}

void StoreServer::serve() {
  std::vector<pollfd> entries;
  for (;;) {
    entries.assign(1, pollfd{wake_.get(), POLLIN, 0});
    for (const Descriptor& listener : listeners_) entries.push_back({listener.get(), POLLIN, 0});
    for (const auto& client : clients_) {
      const int events = POLLIN | (client->outbox.empty() ? 0 : POLLOUT);
      entries.push_back({client->fd.get(), static_cast<short>(events), 0});
    }
    (void)::poll(entries.data(), entries.size(), 200);  // strangers are timed out in between
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    std::uint64_t ignored = 0;
    if (entries[0].revents != 0) (void)!::read(wake_.get(), &ignored, sizeof ignored);
    const std::size_t first_client = 1 + listeners_.size();
    for (std::size_t i = first_client; i < entries.size(); ++i)
      if (entries[i].revents != 0) pump(*clients_[i - first_client]);
    answer_waiting();
    drop_finished();
    for (std::size_t i = 1; i < first_client; ++i)
      if (entries[i].revents != 0) accept_clients(entries[i].fd);
  }
}

void StoreServer::accept_clients(int listener) {
  while (Descriptor connection = accept_one(listener)) {
    const auto stranger = [](const auto& client) { return client->rank.value < 0; };
    if (static_cast<std::size_t>(std::count_if(clients_.begin(), clients_.end(), stranger)) >= max_strangers)
      clients_.erase(std::find_if(clients_.begin(), clients_.end(), stranger));  // the oldest
    clients_.push_back(std::make_unique<Client>(std::move(connection), Deadline(greeting_time)));
  }
  // Out of descriptors the listener stays readable: do not spin on it.
  if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(50ms);
}

// Reads and answers all that is there; any fault of the client ends the client only.
void StoreServer::pump(Client& client) {
  while (!client.finished) {
    Frame frame;
    const auto outcome = client.reader.read(client.fd.get(), frame);
    if (outcome && *outcome == ReadOutcome::would_block) break;
    if (!outcome || *outcome == ReadOutcome::closed || client.outbox.size() > max_outbox_bytes) {
      note_leaving(client);
      client.finished = true;
    } else {
      handle(client, frame);
    }
  }
  if (!client.outbox.flush(client.fd.get())) client.finished = true;
}

void StoreServer::handle(Client& client, const Frame& frame) {
  RecordReader reader(frame.body);
  const bool greeted = client.rank.value >= 0;
  if (frame.type == store_message::hello && !greeted) {
    greet(client, frame.body);
  } else if (frame.type == store_message::set && greeted) {
    const std::string key = reader.text(store_max_key_bytes);
    const Bytes value = reader.bytes(store_max_value_bytes);
    const auto outcome = reader.complete() ? put(key, value) : fail(Errc::protocol, "a malformed message");
    const std::string problem = outcome ? "" : outcome.error().message;
    client.outbox.add(outcome ? store_message::done : store_message::refused,
                      RecordWriter{}.u8(refusal::final).text(problem).view());
  } else if (frame.type == store_message::get && greeted && client.wanted_key.empty()) {
    client.wanted_key = reader.text(store_max_key_bytes);
    if (!reader.complete() || client.wanted_key.empty()) client.finished = true;
  } else {
    client.finished = true;
  }
}

void StoreServer::greet(Client& client, Bytes body) {
  RecordReader reader(body);
  const auto version = reader.u32();
  const std::string group = reader.text(max_group_name_bytes);
  const auto size = reader.u32();
  const auto rank = reader.u32();
  const std::string who = printable(reader.text(max_who_bytes), max_who_bytes);
  const auto refuse = [&](std::uint8_t kind, const std::string& why) {
    client.outbox.add(store_message::refused, RecordWriter{}.u8(kind).text(why).view());
  };
  const auto same_rank = [&](const auto& other) {
    return other->rank.value >= 0 && !other->finished &&
           static_cast<std::uint32_t>(other->rank.value) == rank;
  };
  const auto twin = std::find_if(clients_.begin(), clients_.end(), same_rank);
  if (!reader.complete() || version != protocol_version) {
    refuse(refusal::final, "rank 0 runs another version of Beeline");
  } else if (group != greeting_.group) {
    // Another group meets at this port at the moment; the caller's may come later.
    refuse(refusal::later, fmt::format("group '{}' is meeting there", greeting_.group));
  } else if (size != static_cast<std::uint32_t>(greeting_.size)) {
    refuse(refusal::final, fmt::format("rank {} says that group '{}' has {} ranks, rank 0 says {}", rank,
                                       group, size, greeting_.size));
  } else if (rank == 0 || rank >= size) {
    refuse(refusal::final,
           fmt::format("there is no place for a rank {} beside rank 0 in a group of {}", rank, size));
  } else if (twin != clients_.end()) {
    refuse(refusal::final,
           fmt::format("rank {} of group '{}' is here already ({}): two processes have the same "
                       "rank, or two jobs the same meeting point",
                       rank, group, (*twin)->who));
  } else {
    client.rank = Rank{static_cast<int>(rank)};
    client.who = who;
    client.outbox.add(store_message::done, RecordWriter{}.u8(refusal::final).text("").view());
    watch_for_death(client.fd.get());
  }
}

void StoreServer::answer_waiting() {
  const std::lock_guard lock(mutex_);
  for (const auto& client : clients_) {
    if (client->wanted_key.empty() || client->finished) continue;
    const auto found = values_.find(client->wanted_key);
    if (found != values_.end())
      client->outbox.add(store_message::value, RecordWriter{}.bytes(found->second).view());
    else if (!lost_.empty())
      client->outbox.add(store_message::lost, RecordWriter{}.text(lost_).view());
    else
      continue;
    client->wanted_key.clear();
    if (!client->outbox.flush(client->fd.get())) client->finished = true;
  }
}

// Clients stay connected until the group is complete, so one that leaves will be missed:
// whoever waits for something it should have said hears so at once.
void StoreServer::note_leaving(const Client& client) {
  const std::lock_guard lock(mutex_);
  if (client.rank.value >= 0 && lost_.empty())
    lost_ = fmt::format("rank {} ({}) left before the group was complete", client.rank.value, client.who);
}

std::optional<Error> StoreServer::trouble() {
  const std::lock_guard lock(mutex_);
  if (lost_.empty()) return std::nullopt;
  return Error{Errc::peer_lost, lost_};
}

void StoreServer::drop_finished() {
  const auto over = [](const std::unique_ptr<Client>& client) {
    return client->finished || (client->rank.value < 0 && client->greet_by.passed());
  };
  clients_.erase(std::remove_if(clients_.begin(), clients_.end(), over), clients_.end());
}

}  // namespace beeline::bootstrap
