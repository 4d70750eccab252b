#include "exec/run/run.h"

#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "exec/kernels/kernels.h"

namespace beeline::exec {

using coll::Buffer;
using coll::Step;
using coll::StepKind;

namespace {

std::size_t place(Rank rank) { return static_cast<std::size_t>(rank.value); }

// A WRITE's cookie names its step.
constexpr std::uint32_t cookie_of(std::uint32_t lane, std::uint32_t step) { return step * lanes + lane; }

}  // namespace

Run::Run(Connections& connections, Staging& staging, FlightRecorder& recorder, Rank rank, int size,
         std::uint32_t piece_bytes)
    : connections_(connections),
      staging_(staging),
      recorder_(recorder),
      rank_(rank),
      piece_bytes_(piece_bytes),
      invitations_(static_cast<std::size_t>(size)),
      tickets_(static_cast<std::size_t>(size)),
      advertised_(static_cast<std::size_t>(size)) {
  for (std::uint32_t number = 0; number < lanes; ++number) lanes_[number].number = number;
}

// ---- begin and end

Result<void> Run::begin(const Call& call, const Fingerprint& fingerprint, const Schedule& schedule) {
  call_ = call;
  fingerprint_ = fingerprint;
  schedule_ = &schedule;
  geometry_ = Geometry(call, schedule.plan, piece_bytes_);
  next_piece_ = busy_lanes_ = 0;
  BEELINE_TRY_VOID(register_buffers());
  return check_open_invitations();
}

// Only what the card itself reads or writes; the rest is copied or reduced by the processor.
Result<void> Run::register_buffers() {
  if (schedule_->sends_input && geometry_.input_bytes() != 0) {
    BEELINE_TRY(input_region_,
                connections_.register_memory(const_cast<void*>(call_.send), geometry_.input_bytes(), 0));
  }
  if (schedule_->uses_output && geometry_.output_bytes() != 0) {
    BEELINE_TRY(output_region_,
                connections_.register_memory(call_.receive, geometry_.output_bytes(),
                                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  }
  return {};
}

void Run::forget_buffers() {
  input_region_.reset();
  output_region_.reset();
  schedule_ = nullptr;
}

Result<void> Run::end() {
  const std::uint64_t sequence = fingerprint_.sequence;
  forget_buffers();
  for (std::size_t peer = 0; peer < invitations_.size(); ++peer)
    for (const Message& advert : invitations_[peer].open())
      if (advert.call.sequence == sequence)
        return fail(Errc::protocol, "rank {} asks for more data in call {} than rank {} has to send", peer,
                    sequence, rank_.value);
  return {};
}

// ---- adverts from peers

Result<void> Run::on_advert(Rank peer, const Message& advert) {
  if (schedule_ != nullptr && advert.call.sequence == fingerprint_.sequence)
    BEELINE_TRY_VOID(check_advert(peer, advert));
  if (!invitations_[place(peer)].add(advert))
    return fail(Errc::protocol, "rank {} sent more than {} adverts at once", peer.value, adverts_per_peer);
  return {};
}

// Those that came before the call began here.
Result<void> Run::check_open_invitations() const {
  for (std::size_t peer = 0; peer < invitations_.size(); ++peer)
    for (const Message& advert : invitations_[peer].open())
      if (advert.call.sequence == fingerprint_.sequence)
        BEELINE_TRY_VOID(check_advert(Rank{static_cast<int>(peer)}, advert));
  return {};
}

Result<void> Run::check_invitations_of(const Fingerprint& call) const {
  for (std::size_t peer = 0; peer < invitations_.size(); ++peer)
    for (const Message& advert : invitations_[peer].open())
      if (advert.call.sequence == call.sequence && advert.call != call)
        return tl::unexpected<Error>(mismatch(rank_, call, Rank{static_cast<int>(peer)}, advert.call));
      else if (advert.call.sequence == call.sequence)
        return fail(Errc::protocol, "rank {} treats call {} as a large one, rank {} does not", peer,
                    call.sequence, rank_.value);
  return {};
}

// The same call, and a message that our plan has, of the same size: before a byte leaves.
Result<void> Run::check_advert(Rank peer, const Message& advert) const {
  if (advert.call != fingerprint_)
    return tl::unexpected<Error>(mismatch(rank_, fingerprint_, peer, advert.call));
  const auto& sends = schedule_->sends_to[place(peer)];
  if (advert.piece >= geometry_.pieces() || advert.ordinal >= sends.size())
    return fail(Errc::protocol, "rank {} asks for message {} of piece {} in call {}, which does not exist",
                peer.value, advert.ordinal, advert.piece, advert.call.sequence);
  const Step& step = node(sends[advert.ordinal]).step;
  const std::uint32_t bytes = geometry_.bytes(geometry_.elements(advert.piece, step.source.chunk));
  if (advert.bytes != bytes)
    return fail(Errc::protocol, "rank {} expects {} bytes where rank {} has {} to send", peer.value,
                advert.bytes, rank_.value, bytes);
  return {};
}

// ---- going on

Result<bool> Run::advance() {
  bool moved = false;
  for (Lane& lane : lanes_) {
    if (!lane.busy && next_piece_ < geometry_.pieces()) {
      start_piece(lane);
      moved = true;
    }
    if (!lane.busy) continue;
    BEELINE_TRY(const bool received, advance_receives(lane));
    BEELINE_TRY(const bool sent, advance_sends(lane));
    moved = moved || received || sent;
    if (lane.left == 0) {
      lane.busy = false;
      --busy_lanes_;
      moved = true;
    }
  }
  return moved;
}

void Run::start_piece(Lane& lane) {
  const auto steps = static_cast<Index>(schedule_->nodes.size());
  lane.busy = true;
  ++busy_lanes_;
  lane.piece = next_piece_++;
  lane.left = steps;
  lane.next_receive = 0;
  lane.waits.resize(steps);
  lane.readers.resize(steps);
  lane.slots.assign(steps, no_slot);
  lane.ready_sends.clear();
  for (Index step = 0; step < steps; ++step) {
    lane.waits[step] = node(step).waits_for;
    lane.readers[step] = node(step).scratch_readers;
  }
  for (Index step = 0; step < steps; ++step)
    if (node(step).waits_for == 0) ready(lane, step);
}

// In the plan's order: that is what makes two slots enough (limits.h).
Result<bool> Run::advance_receives(Lane& lane) {
  bool moved = false;
  while (lane.next_receive < schedule_->receives.size()) {
    const Index step = schedule_->receives[lane.next_receive];
    if (lane.waits[step] != 0) break;
    if (moves_nothing(lane, step)) {
      complete_step(lane, step);
    } else {
      BEELINE_TRY(const bool advertised, advertise(lane, step));
      if (!advertised) break;
    }
    ++lane.next_receive;
    moved = true;
  }
  return moved;
}

Result<bool> Run::advertise(Lane& lane, Index index) {
  const Step& step = node(index).step;
  Tickets& tickets = tickets_[place(step.peer)];
  if (!connections_.has_room(step.peer) || !tickets.has_room(lane.number)) return false;
  const coll::Range range = elements(lane, index);
  Message advert{.kind = MessageKind::advert, .call = fingerprint_};
  advert.bytes = geometry_.bytes(range);
  advert.piece = lane.piece;
  advert.ordinal = node(index).ordinal;
  if (advert.bytes != 0 && needs_slot(step)) {
    const auto slot = staging_.take(lane.number);
    if (!slot) return false;
    lane.slots[index] = *slot;
    advert.address = reinterpret_cast<std::uintptr_t>(staging_.address(*slot));
    advert.rkey = staging_.region().rkey;
  } else if (advert.bytes != 0) {
    advert.address = reinterpret_cast<std::uintptr_t>(destination(lane, index));
    advert.rkey = output_region_->rkey;
  }
  advert.ticket = tickets.open(lane.number, index, advert.bytes);
  record("advert sent", step.peer, lane, index, advert.bytes);
  advertised_[place(step.peer)] = fingerprint_.sequence;
  BEELINE_TRY_VOID(connections_.send(step.peer, advert));
  return true;
}

Result<bool> Run::advance_sends(Lane& lane) {
  bool moved = false;
  for (std::size_t i = 0; i < lane.ready_sends.size();) {
    BEELINE_TRY(const bool sent, answer(lane, lane.ready_sends[i]));
    if (sent)
      lane.ready_sends.erase(lane.ready_sends.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
    moved = moved || sent;
  }
  return moved;
}

Result<bool> Run::answer(Lane& lane, Index index) {
  const Step& step = node(index).step;
  if (!connections_.has_room(step.peer)) return false;
  const auto advert =
      invitations_[place(step.peer)].take(fingerprint_.sequence, lane.piece, node(index).ordinal);
  if (!advert) return false;
  Write write{.bytes = advert->bytes,
              .remote_address = advert->address,
              .rkey = advert->rkey,
              .ticket = advert->ticket,
              .cookie = cookie_of(lane.number, index)};
  if (write.bytes != 0) {
    write.from = source(lane, index);
    write.lkey = source_key(step);
  }
  bytes_sent_ += write.bytes;
  record("data sent", step.peer, lane, index, write.bytes);
  BEELINE_TRY_VOID(connections_.write(step.peer, write));
  return true;
}

// ---- completions

void Run::on_written(std::uint32_t cookie) { complete_step(lanes_[cookie % lanes], cookie / lanes); }

Result<void> Run::on_data(Rank peer, std::uint32_t ticket, std::uint32_t bytes) {
  const auto entry = tickets_[place(peer)].close(ticket);
  if (!entry || schedule_ == nullptr)
    return fail(Errc::protocol, "rank {} sent {} bytes that rank {} did not ask for", peer.value, bytes,
                rank_.value);
  if (entry->bytes != bytes)
    return fail(Errc::protocol, "rank {} sent {} bytes where rank {} asked for {}", peer.value, bytes,
                rank_.value, entry->bytes);
  bytes_received_ += bytes;
  Lane& lane = lanes_[entry->lane];
  record("data arrived", peer, lane, entry->step, bytes);
  arrived(lane, entry->step);
  return {};
}

void Run::arrived(Lane& lane, Index index) {
  const Step& step = node(index).step;
  const std::uint32_t slot = lane.slots[index];
  if (slot != no_slot) {
    if (step.kind == StepKind::receive_reduce) reduce_arrived(lane, index, staging_.address(slot));
    if (!writes_scratch(step) || lane.readers[index] == 0) release(lane, index);
  }
  complete_step(lane, index);
}

// A partial sum that stays in scratch replaces what arrived in its slot.
void Run::reduce_arrived(Lane& lane, Index index, std::byte* slot) {
  const Step& step = node(index).step;
  const coll::Range range = elements(lane, index);
  const std::byte* own = source(lane, index);
  std::byte* const out = writes_scratch(step) ? slot : destination(lane, index);
  combine(step, step.peer_first ? slot : own, step.peer_first ? own : slot, out, range.size());
}

void Run::reduce_here(const Lane& lane, Index index) {
  const Schedule::Node& at = node(index);
  const coll::Range range = elements(lane, index);
  if (range.size() == 0) return;  // and no slot
  const std::byte* const left = locate(lane, at.step.source, range, at.scratch_writer);
  const std::byte* const right = locate(lane, at.step.operand, range, at.scratch_writer);
  combine(at.step, left, right, destination(lane, index), range.size());
}

void Run::combine(const Step& step, const std::byte* left, const std::byte* right, std::byte* out,
                  std::size_t count) {
  reduce(call_.dtype, call_.redop, left, right, out, count);
  if (call_.redop == RedOp::avg && step.completes)
    divide(call_.dtype, out, count, schedule_->plan.group_size);
}

void Run::copy(const Lane& lane, Index index) {
  const std::byte* const from = source(lane, index);
  std::byte* const to = destination(lane, index);
  const std::uint32_t bytes = geometry_.bytes(elements(lane, index));
  if (from != to && bytes != 0) std::memcpy(to, from, bytes);
}

// All that a step waited for is complete.
void Run::ready(Lane& lane, Index index) {
  const Step& step = node(index).step;
  if (is_receive(step)) return;  // advance_receives finds it, in its turn
  if (step.kind == StepKind::copy) copy(lane, index);
  if (step.kind == StepKind::reduce) reduce_here(lane, index);
  if (step.kind != StepKind::send || moves_nothing(lane, index))
    complete_step(lane, index);
  else
    lane.ready_sends.push_back(index);
}

// Without recursion: whoever completes a step while another is being completed only notes it.
void Run::complete_step(Lane& lane, Index index) {
  completed_.push_back(index);
  if (completed_.size() > 1) return;
  for (std::size_t i = 0; i < completed_.size(); ++i) {
    const Schedule::Node& done = node(completed_[i]);
    --lane.left;
    if (reads_scratch(done.step) && --lane.readers[done.scratch_writer] == 0)
      release(lane, done.scratch_writer);
    for (const Index dependent : done.dependents)
      if (--lane.waits[dependent] == 0) ready(lane, dependent);
  }
  completed_.clear();
}

void Run::release(Lane& lane, Index writer) {
  if (lane.slots[writer] == no_slot) return;
  staging_.give_back(lane.slots[writer]);
  lane.slots[writer] = no_slot;
}

// ---- where things are

coll::Range Run::elements(const Lane& lane, Index index) const {
  const Step& step = node(index).step;
  // Contributions in scratch are numbered by rank and chunk.
  return geometry_.elements(lane.piece,
                            (step.kind == StepKind::send ? step.source.chunk : step.destination.chunk) %
                                schedule_->plan.chunk_count);
}

// Only a barrier has messages without data.
bool Run::moves_nothing(const Lane& lane, Index index) const {
  return call_.operation != coll::Operation::barrier && elements(lane, index).size() == 0;
}

std::byte* Run::source(const Lane& lane, Index index) const {
  return locate(lane, node(index).step.source, elements(lane, index), node(index).scratch_writer);
}
std::byte* Run::destination(const Lane& lane, Index index) const {
  return locate(lane, node(index).step.destination, elements(lane, index), index);
}

std::byte* Run::locate(const Lane& lane, coll::Slice slice, coll::Range range, Index scratch_writer) const {
  switch (slice.buffer) {
    case Buffer::input:
      return static_cast<std::byte*>(const_cast<void*>(call_.send)) + geometry_.input_offset(range);
    case Buffer::output:
      return static_cast<std::byte*>(call_.receive) + geometry_.output_offset(range);
    case Buffer::scratch:
      break;
  }
  BEELINE_CHECK(lane.slots[scratch_writer] != no_slot);
  return staging_.address(lane.slots[scratch_writer]);
}

std::uint32_t Run::source_key(const Step& step) const {
  switch (step.source.buffer) {
    case Buffer::input:
      return input_region_->lkey;
    case Buffer::output:
      return output_region_->lkey;
    case Buffer::scratch:
      break;
  }
  return staging_.region().lkey;
}

// ---- warnings

std::vector<Rank> Run::waiting_for() const {
  std::vector<bool> late(tickets_.size(), false);
  for (std::size_t peer = 0; peer < tickets_.size(); ++peer) late[peer] = tickets_[peer].any_open();
  if (schedule_ != nullptr)
    for (const Lane& lane : lanes_)
      if (lane.busy)
        for (const Index step : lane.ready_sends) late[place(node(step).step.peer)] = true;
  std::vector<Rank> ranks;
  for (std::size_t peer = 0; peer < late.size(); ++peer)
    if (late[peer]) ranks.push_back(Rank{static_cast<int>(peer)});
  return ranks;
}

void Run::record(const char* what, Rank peer, const Lane& lane, Index step, std::uint64_t bytes) {
  recorder_.record(monotonic_now(), what, peer, fingerprint_.sequence, lane.piece, step, bytes);
}

}  // namespace beeline::exec
