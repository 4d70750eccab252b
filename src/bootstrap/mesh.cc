#include "bootstrap/mesh.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace beeline::bootstrap {

std::string list_ranks(const std::vector<Rank>& ranks) {
  constexpr std::size_t shown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < shown; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i].value);
  if (ranks.size() > shown) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

Result<std::unique_ptr<Mesh>> Mesh::create(const GroupOptions& options, Identity self) {
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(errno, "cannot create an epoll descriptor");
  return std::unique_ptr<Mesh>(new Mesh(options, std::move(self), std::move(epoll)));
}

Mesh::Mesh(const GroupOptions& options, Identity self, Descriptor epoll)
    : options_(options),
      self_(std::move(self)),
      epoll_(std::move(epoll)),
      links_(static_cast<std::size_t>(options.size)) {}

Mesh::~Mesh() {
  if (!abandoned_) say_goodbye();
}

// Peers read the goodbye even when a stopped one delays ours: 100 ms are spent on those at most.
void Mesh::say_goodbye() {
  const Deadline deadline(100ms);
  for (const auto& link : links_)
    if (link) link->send_goodbye();
  const auto unsent = [&] {
    for (const auto& link : links_)
      if (link && link->has_unsent()) return true;
    return false;
  };
  while (unsent() && !deadline.passed()) {
    std::this_thread::sleep_for(1ms);
    for (const auto& link : links_)
      if (link) link->flush();
  }
}

void Mesh::add_link(Rank rank, Descriptor fd, Identity identity) {
  const std::lock_guard lock(mutex_);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = fd.get();
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event);
  links_[static_cast<std::size_t>(rank.value)] = std::make_unique<Link>(std::move(fd), std::move(identity));
}

bool Mesh::connected(Rank rank) const {
  const std::lock_guard lock(mutex_);
  return links_[static_cast<std::size_t>(rank.value)] != nullptr;
}

std::string Mesh::describe(Rank rank) const {
  const std::lock_guard lock(mutex_);
  return name_of(rank);
}

std::string Mesh::name_of(Rank rank) const {
  const Link* link = rank.value >= 0 && rank.value < options_.size
                         ? links_[static_cast<std::size_t>(rank.value)].get()
                         : nullptr;
  if (link == nullptr && rank != options_.rank) return fmt::format("rank {}", rank.value);
  const Identity& identity = link == nullptr ? self_ : link->identity();
  return fmt::format("rank {} (pid {} on {})", rank.value, identity.pid, identity.host);
}

void Mesh::pump_all() {
  for (const auto& link : links_)
    if (link && link->fd() >= 0) {
      link->pump();
      link->flush();
      if (link->open()) continue;
      // By hand: a child that has just been forked may still hold the connection, and keep it in the set.
      (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link->fd(), nullptr);
      link->drop();
    }
}

// Keeps the first failure. What a peer reported explains more than that another is gone, so it comes first.
void Mesh::note_failures() {
  if (failure_) return;
  for (int r = 0; r < options_.size; ++r)
    if (const auto& link = links_[static_cast<std::size_t>(r)]; link && link->reported()) {
      failure_ = PeerFailure{Rank{r}, *link->reported()};
      return;
    }
  for (int r = 0; r < options_.size; ++r)
    if (const auto& link = links_[static_cast<std::size_t>(r)]; link && link->broken()) {
      const auto text =
          fmt::format("{} is gone: its process ended or its connection broke", name_of(Rank{r}));
      failure_ = PeerFailure{Rank{r}, Error{Errc::peer_lost, text}};
      return;
    }
}

std::optional<PeerFailure> Mesh::poll_failure() {
  const std::lock_guard lock(mutex_);
  epoll_event event{};
  const bool traffic = ::epoll_wait(epoll_.get(), &event, 1, 0) != 0;
  if (traffic) pump_all();
  note_failures();
  return failure_;
}

void Mesh::broadcast_failure(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(told_, true)) return;
  for (const auto& link : links_)
    if (link) link->send_failure(error);
}

// Takes the contributions that have come. `left` becomes a rank whose one cannot come any more.
bool Mesh::collect(std::vector<std::vector<std::byte>>& out, std::vector<bool>& have,
                   std::optional<Rank>& left) {
  bool complete = true;
  for (std::size_t r = 0; r < links_.size(); ++r) {
    if (have[r]) continue;
    auto value = links_[r] ? links_[r]->take_contribution() : std::nullopt;
    if (value) {
      out[r] = std::move(*value);
      have[r] = true;
    } else {
      complete = false;
      if (!links_[r] || links_[r]->said_goodbye() || !links_[r]->open()) left = Rank{static_cast<int>(r)};
    }
  }
  return complete;
}

Result<std::vector<std::vector<std::byte>>> Mesh::all_gather(Bytes mine, Duration timeout) {
  if (mine.size() > max_contribution_bytes)
    return fail(Errc::invalid_argument, "{} bytes are too many for one exchange ({} are allowed)",
                mine.size(), max_contribution_bytes);
  const std::lock_guard one_at_a_time(gathering_);
  const Deadline deadline(timeout);
  const bool large = mine.size() > std::size_t{32} * 1024;  // a stopped peer's kernel takes at least that
  std::vector<std::vector<std::byte>> out(links_.size());
  std::vector<bool> have(links_.size(), false);
  out[static_cast<std::size_t>(options_.rank.value)].assign(mine.begin(), mine.end());
  have[static_cast<std::size_t>(options_.rank.value)] = true;
  std::unique_lock lock(mutex_);
  for (const auto& link : links_)
    if (link) {
      if (large) link->expect_slow_reader(true);
      link->send_contribution(mine);
    }
  for (;;) {
    pump_all();
    std::optional<Rank> left;
    const bool complete = collect(out, have, left);
    bool unsent = false;
    for (const auto& link : links_) unsent = unsent || (link && link->has_unsent());
    if (complete && !unsent) break;
    note_failures();
    if (failure_ && !complete) return tl::unexpected(failure_->error);
    if (left) return fail(Errc::peer_lost, "{} has left the group '{}'", name_of(*left), options_.name);
    if (deadline.passed())
      return fail(Errc::timed_out, "{} of group '{}' did not answer within {} s", describe_missing(have),
                  options_.name, std::chrono::duration<double>(timeout).count());
    lock.unlock();
    wait_for_traffic(deadline);
    lock.lock();
  }
  for (const auto& link : links_)
    if (large && link) link->expect_slow_reader(false);
  return out;
}

// Short slices, because another thread's poll_failure may have read what we wait for.
void Mesh::wait_for_traffic(const Deadline& deadline) {
  std::vector<pollfd> entries;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& link : links_)
      if (link && link->open())
        entries.push_back({link->fd(), static_cast<short>(POLLIN | (link->has_unsent() ? POLLOUT : 0)), 0});
  }
  (void)::poll(entries.data(), entries.size(), deadline.poll_ms(20ms));
}

std::string Mesh::describe_missing(const std::vector<bool>& have) const {
  std::vector<Rank> missing;
  for (std::size_t r = 0; r < have.size(); ++r)
    if (!have[r]) missing.push_back(Rank{static_cast<int>(r)});
  if (missing.empty()) return "a peer that does not read";
  return missing.size() == 1 ? name_of(missing[0]) : list_ranks(missing);
}

void Mesh::abandon_after_fork() {
  abandoned_ = true;
  epoll_.reset();
  for (const auto& link : links_)
    if (link) link->drop();
}

}  // namespace beeline::bootstrap
