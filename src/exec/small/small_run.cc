#include "exec/small/small_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "exec/kernels/kernels.h"
#include "exec/small/header.h"

namespace beeline::exec {
namespace {

using coll::Operation;
using Kind = Script::Kind;

// In a small group one round of messages to everybody beats several rounds of one.
constexpr int direct_ranks = 4;

// The most contributions in one parcel.
std::size_t most_carried(coll::Algorithm algorithm, int size) {
  if (algorithm == coll::Algorithm::direct || size < 2) return 1;
  int last_distance = 1;
  while (last_distance * 2 < size) last_distance *= 2;
  return static_cast<std::size_t>(std::max(last_distance / 2, size - last_distance));
}

std::uint64_t in_network_order(std::uint64_t sequence) {
  std::uint64_t swapped = 0;
  store_be64(reinterpret_cast<std::byte*>(&swapped), sequence);
  return swapped;
}

}  // namespace

SmallRun::SmallRun(Connections& connections, Rank rank, int size)
    : connections_(connections),
      rank_(rank),
      size_(size),
      algorithm_(size <= direct_ranks ? coll::Algorithm::direct : coll::Algorithm::dissemination),
      bases_(Program::parcels + static_cast<std::size_t>(size)),
      partial_(parcel_bytes(size)),
      senders_(static_cast<std::size_t>(size)) {}

bool SmallRun::takes(const Call& call) const {
  if (call.operation == Operation::barrier) return true;
  const std::size_t most = parcel_bytes(size_), element = element_bytes(call.dtype);
  if (call.count > most / element) return false;
  const std::size_t bytes = call.count * element, ranks = static_cast<std::size_t>(size_);
  switch (call.operation) {
    case Operation::broadcast:
      return true;
    case Operation::reduce_scatter:
      // What is gathered for others to read makes parcels long: at most every rank's block in each.
      return bytes * (algorithm_ == coll::Algorithm::direct ? 1 : most_carried(algorithm_, size_) * ranks) <=
             most;
    default:
      return bytes * most_carried(algorithm_, size_) <= most;
  }
}

// ---- begin and end

Result<void> SmallRun::begin(const Call& call, const Fingerprint& fingerprint) {
  fingerprint_ = fingerprint;
  dtype_ = call.dtype;
  redop_ = call.redop;
  BEELINE_TRY(Known* const known, find(call, fingerprint));
  header_ = known->header;
  store_sequence(header_, fingerprint.sequence);
  std::memcpy(&sequence_be_, header_.data() + sequence_offset, sizeof sequence_be_);
  bases_[Program::input] = static_cast<std::byte*>(const_cast<void*>(call.send));
  bases_[Program::output] = static_cast<std::byte*>(call.receive);
  bases_[Program::partial] = partial_.data();
  program_ = &known->program;
  next_ = 0;
  looks_for_letters_ = false;
  for (const Instruction& instruction : program_->instructions) {
    if (instruction.kind != Kind::await) continue;
    if (has_taken(instruction.peer)) BEELINE_TRY_VOID(check(instruction.peer));
    if (connections_.expects_letters(instruction.peer)) looks_for_letters_ = true;
  }
  return {};
}

Result<SmallRun::Known*> SmallRun::find(const Call& call, const Fingerprint& fingerprint) {
  Fingerprint key = fingerprint;
  key.sequence = 0;
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const std::size_t candidate = (latest_ + i) % known_.size();
    if (known_[candidate].used && known_[candidate].call == key) {
      latest_ = candidate;
      return &known_[candidate];
    }
  }
  BEELINE_TRY(const Script* const script, script_for(call));
  latest_ = oldest_++ % known_.size();
  known_[latest_] = {true, key, make_program(*script, call),
                     encode({.kind = MessageKind::parcel, .call = key})};
  return &known_[latest_];
}

Result<const Script*> SmallRun::script_for(const Call& call) {
  const Rank root = call.operation == Operation::broadcast ? call.root : Rank{0};
  const auto key = std::pair(call.operation, root.value);
  if (const auto known = scripts_.find(key); known != scripts_.end()) return &known->second;
  BEELINE_TRY(const auto carrier, coll::make_plan(Operation::barrier, algorithm_, size_, rank_));
  BEELINE_TRY(auto plan, coll::make_plan(call.operation, algorithm_, size_, rank_, root));
  return &scripts_.emplace(key, make_script(carrier, std::move(plan))).first->second;
}

Result<void> SmallRun::end() {
  BEELINE_TRY_VOID(wake_sleepers());
  const Program& over = *program_;
  program_ = nullptr;
  has_sent_letters_ = false;
  for (const Instruction& instruction : over.instructions) {
    if (instruction.kind == Kind::send) connections_.count_call(instruction.peer);
    if (instruction.kind != Kind::await) continue;
    const Parcel& parcel = senders_[index(instruction.peer)].parcels[fingerprint_.sequence % 2];
    if (!parcel.is_letter) BEELINE_TRY_VOID(connections_.release(instruction.peer, parcel));
  }
  return {};
}

// ---- parcels that arrive

// A peer is in our call or in the next one, because it needs a parcel of ours, or of somebody who has heard
// of us, to get further.
Result<void> SmallRun::on_parcel(Rank peer, const Parcel& parcel, const Fingerprint& now, bool under_way) {
  const std::uint64_t sequence = load_sequence(parcel.data);
  Sender& sender = senders_[index(peer)];
  const bool in_turn = sequence == now.sequence ? under_way : sequence == now.sequence + 1;
  if (!in_turn || sequence <= sender.last)
    return fail(Errc::protocol, "rank {} sent data of its call {} to rank {}, which is in call {}",
                peer.value, sequence, rank_.value, now.sequence);
  sender.last = sequence;
  sender.parcels[sequence % 2] = parcel;
  sender.sequences[sequence % 2] = sequence;
  if (sequence != now.sequence) return {};
  if (program_ != nullptr) return check(peer);
  if (auto other = difference(now)) return tl::unexpected<Error>(std::move(*other));
  return {};
}

// What is in the mailbox counts as arrived from here on.
void SmallRun::take_letter(Rank peer, std::uint64_t sequence) {
  Sender& sender = senders_[index(peer)];
  sender.last = std::max(sender.last, sequence);
  sender.sequences[sequence % 2] = sequence;
  sender.parcels[sequence % 2] = {.data = connections_.letter_from(peer, sequence), .is_letter = true};
}

std::uint64_t SmallRun::last_from(Rank peer, std::uint64_t before) {
  if (connections_.has_letter(peer, before, in_network_order(before))) take_letter(peer, before);
  return senders_[index(peer)].last;
}

MessageBuffer SmallRun::header_of(const Parcel& parcel) {
  MessageBuffer header{};
  if (parcel.is_letter)
    std::memcpy(header.data(), parcel.data - postmark_bytes, postmark_bytes);
  else
    std::memcpy(header.data(), parcel.data, message_bytes);
  return header;
}

// The same call, and what the plan expects, before a byte of it is used.
Result<void> SmallRun::check(Rank peer) const {
  const Parcel& parcel = senders_[index(peer)].parcels[fingerprint_.sequence % 2];
  if (parcel.is_letter)  // as long as what was called says, which makes it as long as expected
    return same_header(parcel.data - postmark_bytes, header_) ? Result<void>{} : explain(peer, parcel);
  if (!same_header(parcel.data, header_)) return explain(peer, parcel);
  for (const Instruction& instruction : program_->instructions) {
    if (instruction.kind != Kind::await || instruction.peer != peer) continue;
    if (parcel.bytes == message_bytes + instruction.bytes) return {};
    return fail(Errc::protocol, "rank {} sent {} bytes where rank {} expects {}", peer.value,
                parcel.bytes - message_bytes, rank_.value, instruction.bytes);
  }
  return fail(Errc::protocol, "rank {} sent data to rank {}, which does not expect any of it", peer.value,
              rank_.value);
}

Result<void> SmallRun::explain(Rank peer, const Parcel& parcel) const {
  const auto message = decode(header_of(parcel));
  if (!message || message->call == fingerprint_)
    return fail(Errc::protocol,
                "rank {} sent a message that makes no sense: do all ranks run the same version?", peer.value);
  return tl::unexpected<Error>(mismatch(rank_, fingerprint_, peer, message->call));
}

std::optional<Error> SmallRun::difference(const Fingerprint& call) {
  const std::uint64_t sequence_be = in_network_order(call.sequence);
  for (int rank = 0; rank < size_; ++rank) {
    if (connections_.has_letter(Rank{rank}, call.sequence, sequence_be))
      take_letter(Rank{rank}, call.sequence);
    const Sender& sender = senders_[static_cast<std::size_t>(rank)];
    if (sender.sequences[call.sequence % 2] != call.sequence) continue;
    const auto message = decode(header_of(sender.parcels[call.sequence % 2]));
    if (message && message->call != call) return mismatch(rank_, call, Rank{rank}, message->call);
    return Error{Errc::protocol, fmt::format("rank {} treats call {} as a small one, rank {} does not", rank,
                                             call.sequence, rank_.value)};
  }
  return std::nullopt;
}

// ---- going on

Result<bool> SmallRun::advance() {
  const std::size_t before = next_;
  const auto& instructions = program_->instructions;
  for (; next_ < instructions.size(); ++next_) {
    const Instruction& instruction = instructions[next_];
    switch (instruction.kind) {
      case Kind::copy:
        if (at(instruction.left) != at(instruction.out))
          std::memcpy(at(instruction.out), at(instruction.left), instruction.bytes);
        continue;
      case Kind::reduce:
        reduce(instruction);
        continue;
      case Kind::send:
      case Kind::await:
        break;
    }
    BEELINE_TRY(const bool moved, instruction.kind == Kind::send ? send(instruction) : await(instruction));
    if (!moved) break;
  }
  return next_ != before;
}

void SmallRun::gather(const Instruction& send, std::byte* to) const {
  for (std::uint32_t i = send.first_part; i < send.first_part + send.parts; ++i) {
    const Program::Part& part = program_->parts[i];
    std::memcpy(to + part.in_parcel, at(part.here), part.bytes);
  }
}

Result<bool> SmallRun::send_letter(const Instruction& send) {
  std::byte* const place = connections_.letter_place(send.peer, send.bytes);
  if (place == nullptr) return false;
  gather(send, place);
  bytes_sent_ += send.bytes;
  BEELINE_TRY_VOID(connections_.send_letter(send.peer, send.bytes, header_, fingerprint_.sequence));
  has_sent_letters_ = true;
  return true;
}

// A peer that sleeps looks only when it is woken. It says that it sleeps before it looks for the last time,
// and we look whether it does after the letter is there: one of the two sees the other. Not at once, because
// this waits until the letter has arrived. And again, because what the peer says may be late.
Result<void> SmallRun::wake_sleepers() {
  if (!has_sent_letters_) return {};
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (std::size_t i = 0; i < next_; ++i) {
    const Instruction& send = program_->instructions[i];
    if (send.kind != Kind::send || !connections_.may_get_letters(send.peer)) continue;
    std::uint64_t& woken = senders_[index(send.peer)].woken;
    if (woken == fingerprint_.sequence || !connections_.is_asleep(send.peer, sequence_be_) ||
        !connections_.has_room(send.peer))
      continue;
    BEELINE_TRY_VOID(connections_.send(send.peer, {.kind = MessageKind::wake, .call = fingerprint_}, true));
    woken = fingerprint_.sequence;
    connections_.prefer_messages(send.peer);
  }
  return {};
}

bool SmallRun::prepare_to_sleep() {
  if (!may_get_letters()) return false;
  const std::vector<Rank> missing = silent();
  all_know_that_we_sleep_ = true;
  for (const Rank peer : missing)
    if (connections_.expects_letters(peer) && !connections_.say_asleep(peer, sequence_be_))
      all_know_that_we_sleep_ = false;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return std::any_of(missing.begin(), missing.end(), [&](Rank peer) { return has(peer); });
}

Result<bool> SmallRun::send(const Instruction& send) {
  if (connections_.takes_letter(send.peer, send.bytes)) return send_letter(send);
  const std::uint32_t bytes = static_cast<std::uint32_t>(message_bytes) + send.bytes;
  std::byte* const slot = connections_.parcel_slot(send.peer, bytes);
  if (slot == nullptr) return false;
  write_header(slot, header_);
  gather(send, slot + message_bytes);
  bytes_sent_ += send.bytes;
  BEELINE_TRY_VOID(connections_.send_parcel(send.peer, bytes));
  return true;
}

Result<bool> SmallRun::await(const Instruction& await) {
  if (!has_taken(await.peer)) {
    if (!has_letter(await.peer)) return false;
    take_letter(await.peer, fingerprint_.sequence);
    BEELINE_TRY_VOID(check(await.peer));
  }
  const Parcel& parcel = senders_[index(await.peer)].parcels[fingerprint_.sequence % 2];
  std::byte* const payload =
      parcel.is_letter ? parcel.data - postmark_bytes - await.bytes : parcel.data + message_bytes;
  bases_[Program::parcels + index(await.peer)] = payload;
  for (std::uint32_t i = await.first_part; i < await.first_part + await.parts; ++i) {
    const Program::Part& part = program_->parts[i];
    std::memcpy(at(part.here), payload + part.in_parcel, part.bytes);
  }
  bytes_received_ += await.bytes;
  return true;
}

void SmallRun::reduce(const Instruction& reduce) {
  exec::reduce(dtype_, redop_, at(reduce.left), at(reduce.right), at(reduce.out), reduce.elements);
  if (reduce.completes && redop_ == RedOp::avg) divide(dtype_, at(reduce.out), reduce.elements, size_);
}

std::vector<Rank> SmallRun::silent() const {
  std::vector<Rank> ranks;
  if (program_ == nullptr) return ranks;
  for (const Instruction& instruction : program_->instructions)
    if (instruction.kind == Kind::await && !has(instruction.peer)) ranks.push_back(instruction.peer);
  return ranks;
}

}  // namespace beeline::exec
