#include "bootstrap/meeting.h"

#include <poll.h>

#include <algorithm>
#include <thread>

#include "base/random.h"
#include "bootstrap/door.h"

namespace beeline::bootstrap {
namespace {

constexpr Duration first_pause = 20ms, longest_pause = 500ms;

class Meeting {
 public:
  Meeting(const GroupOptions& options, Store& store, const Trouble& trouble)
      : options_(options), store_(store), trouble_(trouble), deadline_(options.timeout) {}

  Result<std::unique_ptr<Mesh>> run(const std::vector<IpAddress>& addresses);

 private:
  Result<void> prepare(const std::vector<IpAddress>& addresses);
  Result<void> publish(const std::string& key);
  Result<void> connect_to_rank(Rank peer);
  Result<Entry> fetch(Rank peer);
  Result<void> admit_higher_ranks();
  Error reason_behind(const Error& store_error);
  Result<void> check_for_trouble();
  std::string key_of(Rank rank) const;
  tl::unexpected<Error> missing(const std::vector<Rank>& ranks, const std::string& detail) const;

  const GroupOptions& options_;
  Store& store_;
  const Trouble& trouble_;
  Deadline deadline_;
  Entry self_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<Door> door_;
};

std::string Meeting::key_of(Rank rank) const {
  if (rank.value == 0) return fmt::format("beeline/{}/0", options_.name);
  return fmt::format("beeline/{}/{:016x}/{}", options_.name, self_.group_id, rank.value);
}

tl::unexpected<Error> Meeting::missing(const std::vector<Rank>& ranks, const std::string& detail) const {
  return fail(Errc::timed_out, "group '{}': {} of {} did not come within {} s, says {}{}", options_.name,
              list_ranks(ranks), options_.size, std::chrono::duration<double>(options_.timeout).count(),
              mesh_->describe(options_.rank), detail.empty() ? "" : fmt::format(" ({})", detail));
}

Result<void> Meeting::prepare(const std::vector<IpAddress>& addresses) {
  self_.identity = own_identity();
  self_.host_key = own_host_key();
  for (Secret* secret : {&self_.knock, &self_.answer}) {
    store_be64(secret->data(), secure_random());
    store_be64(secret->data() + 8, secure_random());
  }
  BEELINE_TRY(mesh_, Mesh::create(options_, self_.identity));
  BEELINE_TRY(door_, Door::open(addresses, options_, self_));
  self_.endpoints = door_->endpoints();
  return {};
}

Result<void> Meeting::publish(const std::string& key) { return store_.set(key, encode_entry(self_)); }

Result<Entry> Meeting::fetch(Rank peer) {
  auto value = store_.get(key_of(peer), std::max<Duration>(deadline_.left(), 1ms));
  if (!value && value.error().code == Errc::timed_out) return missing({peer}, "");
  if (!value) return tl::unexpected(reason_behind(value.error()));
  return decode_entry(*value);
}

// When the store ends, its rank 0 has just given up and told us why on our own connection to it.
Error Meeting::reason_behind(const Error& store_error) {
  const Deadline patience(store_error.code == Errc::peer_lost ? Duration(200ms) : Duration::zero());
  do {
    if (const auto failure = mesh_->poll_failure()) return failure->error;
    std::this_thread::sleep_for(5ms);
  } while (!patience.passed());
  return store_error;
}

Result<void> Meeting::connect_to_rank(Rank peer) {
  Duration pause = first_pause;
  for (;;) {
    BEELINE_TRY(const Entry entry, fetch(peer));
    if (peer.value == 0) self_.group_id = entry.group_id;
    auto connection = knock_at(entry, self_, options_.rank, deadline_);
    if (connection) {
      mesh_->add_link(peer, std::move(*connection), entry.identity);
      return {};
    }
    BEELINE_TRY_VOID(check_for_trouble());
    if (deadline_.passed()) return missing({peer}, connection.error().message);
    std::this_thread::sleep_for(std::min<Duration>(pause, std::max(deadline_.left(), Duration::zero())));
    pause = std::min<Duration>(pause * 2, longest_pause);
  }
}

Result<void> Meeting::check_for_trouble() {
  if (const auto failure = mesh_->poll_failure()) return tl::unexpected(failure->error);
  if (const auto error = trouble_ ? trouble_() : std::nullopt) return tl::unexpected(*error);
  return {};
}

Result<void> Meeting::admit_higher_ranks() {
  for (;;) {
    std::vector<Rank> absent;
    for (int r = options_.rank.value + 1; r < options_.size; ++r)
      if (!mesh_->connected(Rank{r})) absent.push_back(Rank{r});
    if (absent.empty()) return {};
    BEELINE_TRY_VOID(check_for_trouble());
    if (deadline_.passed()) return missing(absent, "");
    for (Arrival& arrival : door_->wait(mesh_->wait_descriptor(), deadline_.sooner(200ms)))
      if (!mesh_->connected(arrival.rank))
        mesh_->add_link(arrival.rank, std::move(arrival.connection), std::move(arrival.identity));
  }
}

Result<std::unique_ptr<Mesh>> Meeting::run(const std::vector<IpAddress>& addresses) {
  BEELINE_TRY_VOID(prepare(addresses));
  const auto steps = [&]() -> Result<void> {
    if (options_.rank.value == 0) {
      self_.group_id = secure_random();
      BEELINE_TRY_VOID(publish(key_of(Rank{0})));
    } else {
      BEELINE_TRY_VOID(connect_to_rank(Rank{0}));
      BEELINE_TRY_VOID(publish(key_of(options_.rank)));
    }
    for (int r = 1; r < options_.rank.value; ++r) BEELINE_TRY_VOID(connect_to_rank(Rank{r}));
    BEELINE_TRY_VOID(admit_higher_ranks());
    // Nobody returns before everybody is connected, so that every rank sees the same outcome.
    BEELINE_TRY_VOID(mesh_->all_gather({}, std::max<Duration>(deadline_.left(), 1s)));
    return {};
  };
  if (const auto outcome = steps(); !outcome) {
    mesh_->broadcast_failure(outcome.error());
    return tl::unexpected(outcome.error());
  }
  return std::move(mesh_);
}

}  // namespace

Result<std::unique_ptr<Mesh>> connect_all(const GroupOptions& options, Store& store,
                                          const std::vector<IpAddress>& addresses, const Trouble& trouble) {
  return Meeting(options, store, trouble).run(addresses);
}

}  // namespace beeline::bootstrap
