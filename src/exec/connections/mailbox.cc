// The part of the connections that deals with letters.
#include "exec/connections/mailbox.h"

#include <cerrno>
#include <cstdlib>

#include "exec/connections/connections.h"

namespace beeline::exec {

void FreePeerWritten::operator()(std::byte* memory) const {
  if (provider == nullptr)
    std::free(memory);
  else
    provider->free_memory(context, memory);
}

Result<PeerWritten> Connections::allocate_for_peer(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  bytes = (bytes + page - 1) / page * page;
  ibv_context* const context = pd_->context;
  if (void* const memory = provider_.allocate_memory(context, bytes); memory != nullptr)
    return PeerWritten(static_cast<std::byte*>(memory), {&provider_, context});
  if (errno != 0) return fail_errno(errno, "allocating memory that a peer writes to");
  auto* const own = static_cast<std::byte*>(std::aligned_alloc(page, bytes));
  if (own == nullptr) return fail_errno(ENOMEM, "allocating memory that a peer writes to");
  std::memset(own, 0, bytes);
  return PeerWritten(own, {});
}

Result<void> Connections::create_mailbox(Peer& peer) {
  BEELINE_TRY(peer.mailbox, allocate_for_peer(mailbox_bytes));
  BEELINE_TRY(peer.mailbox_region, register_memory(peer.mailbox.get(), mailbox_bytes,
                                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  return {};
}

Message Connections::invitation(Rank rank) const {
  const Peer& peer = peers_[index(rank)];
  return {.kind = MessageKind::probe,
          .address = reinterpret_cast<std::uintptr_t>(peer.mailbox.get()),
          .rkey = peer.mailbox_region->rkey,
          .bytes = mailbox_bytes};
}

void Connections::accept(Rank rank, const Message& invitation) {
  if (invitation.bytes != mailbox_bytes) return;
  Peer& peer = peers_[index(rank)];
  peer.remote_mailbox = invitation.address;
  peer.remote_mailbox_key = invitation.rkey;
}

// Once messages have gone both ways. The first WRITE shows the device where letters will go.
void Connections::open_mailboxes() {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (peer.qp == nullptr || peer.remote_mailbox == 0) continue;
    peer.letters_open = peer.inline_bytes >= postmark_bytes && provider_.writes_last_word_last(peer.qp.get());
    has_mailboxes_ = true;
    if (peer.letters_open) (void)say_asleep(Rank{rank}, 0);
  }
}

std::byte* Connections::letter_place(Rank rank, std::uint32_t payload) {
  Peer& peer = peers_[index(rank)];
  if (!has_room(rank)) return nullptr;
  if (payload + postmark_bytes <= peer.inline_bytes) return inline_parcel_.data();
  const std::uint32_t place = peer.letters % letters_in_flight;
  const bool in_use = peer.letters >= letters_in_flight && !peer.is_retired(peer.letter_numbers[place]);
  return in_use ? nullptr : peer.letter_places + place * letter_bytes;
}

Result<void> Connections::send_letter(Rank rank, std::uint32_t payload, const MessageBuffer& header,
                                      std::uint64_t sequence) {
  Peer& peer = peers_[index(rank)];
  const auto bytes = static_cast<std::uint32_t>(payload + postmark_bytes);
  const bool goes_inline = bytes <= peer.inline_bytes;
  const std::uint32_t place = peer.letters % letters_in_flight;
  std::byte* const from =
      goes_inline ? inline_parcel_.data() : peer.letter_places + std::size_t{place} * letter_bytes;
  std::memcpy(from + payload, header.data(), postmark_bytes);
  BEELINE_TRY_VOID(write_to_mailbox(rank, from, bytes, letter_end(std::uint64_t{0}, sequence) - bytes));
  if (!goes_inline) {
    peer.letter_numbers[place] = peer.posted;
    ++peer.letters;
  }
  return {};
}

// Behind a message it is there when that is; said once, it need not be said again.
bool Connections::say_asleep(Rank rank, std::uint64_t sequence_be) {
  Peer& peer = peers_[index(rank)];
  if (!peer.letters_open) return false;
  const bool quiet = is_quiet(peer);
  if (peer.said_asleep == sequence_be) return quiet;
  if (!has_room(rank)) return false;
  std::array<std::byte, sizeof sequence_be> word;
  std::memcpy(word.data(), &sequence_be, sizeof sequence_be);
  if (!write_to_mailbox(rank, word.data(), sizeof sequence_be, sleeper_offset, !quiet)) return false;
  peer.said_asleep = sequence_be;
  if (!quiet) peer.last_message = peer.posted;
  return quiet;
}

Result<void> Connections::write_to_mailbox(Rank rank, const std::byte* from, std::uint32_t bytes,
                                           std::uint64_t offset, bool signaled) {
  Peer& peer = peers_[index(rank)];
  ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(from), .length = bytes, .lkey = slots_region_->lkey};
  ibv_send_wr request = request_for(peer, IBV_WR_RDMA_WRITE, sge);
  const bool goes_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
  if (signaled || peer.unsignaled + 1 >= (goes_inline ? send_depth / 2 : signal_every))
    request.send_flags |= IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = peer.remote_mailbox + offset;
  request.wr.rdma.rkey = peer.remote_mailbox_key;
  peer.cookies[peer.posted % send_depth] = no_cookie;
  return post(rank, request);
}

}  // namespace beeline::exec
