// The verbs side of a communicator: a reliable connection to every other rank, one
// completion queue for all of them, and the slots that control messages travel in.
//
// Used by one thread at a time. Calls nobody back except from poll().
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "exec/connections/mailbox.h"
#include "exec/limits.h"
#include "exec/message.h"
#include "verbs/own_address.h"
#include "verbs/verbs.h"

namespace beeline::exec {

// A message with data behind it, in the slot that it arrived in: until it is released.
struct Parcel {
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;  // at least message_bytes
  std::uint32_t slot = 0;
  bool is_letter = false;  // `data` is its end in the mailbox, of which nothing is released
};

// What happens on the connections, in the order of completion.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_message(Rank peer, const Message& message) = 0;
  virtual void on_parcel(Rank peer, const Parcel& parcel) = 0;
  virtual void on_data(Rank peer, std::uint32_t ticket, std::uint32_t bytes) = 0;  // for one of our adverts
  virtual void on_written(Rank peer, std::uint32_t cookie) = 0;                    // our WRITE is complete
  virtual void on_broken(Rank peer, Error error) = 0;
};

struct Write {
  const void* from = nullptr;
  std::uint32_t lkey = 0;
  std::uint32_t bytes = 0;  // 0: only the immediate
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t ticket = 0;
  std::uint32_t cookie = 0;
};

// Of the device, or any.
struct FreePeerWritten {
  verbs::Provider* provider = nullptr;  // nullptr: the C library's
  ibv_context* context = nullptr;
  void operator()(std::byte* memory) const;
};
using PeerWritten = std::unique_ptr<std::byte, FreePeerWritten>;

inline constexpr std::uint32_t no_cookie = UINT32_MAX;  // of a WRITE that nobody hears of

class Connections {
 public:
  static Result<std::unique_ptr<Connections>> create(verbs::Provider& provider, ibv_context* context,
                                                     const verbs::GidChoice& gid, Rank rank, int size);

  const verbs::QpAddress& local_address(Rank peer) const { return peers_[index(peer)].local; }
  // Brings the queue pair to RTS and posts its receives.
  Result<void> connect(Rank peer, const verbs::QpAddress& remote);
  // "GID 10.0.0.1 -> 10.0.0.2"
  std::string path(Rank peer) const;

  bool has_room(Rank peer) const {
    const Peer& to = peers_[index(peer)];
    return to.posted - to.retired < send_depth;
  }
  bool all_sent(Rank peer) const { return peers_[index(peer)].posted == peers_[index(peer)].retired; }
  // Both need room.
  Result<void> send(Rank peer, const Message& message, bool signal = false);
  Result<void> write(Rank peer, const Write& request);
  // Where to put the next parcel together; null when there is no room now. Then it is sent from there.
  std::byte* parcel_slot(Rank peer, std::uint32_t bytes);
  Result<void> send_parcel(Rank peer, std::uint32_t bytes);
  // Its slot is received into again.
  Result<void> release(Rank peer, const Parcel& parcel) { return post_receive(peer, parcel.slot); }

  // ---- letters: short parcels, written straight to where the peer looks for them (mailbox.h)

  // Both ends of every mailbox are known: letters may be sent to whoever sees them in time.
  Message invitation(Rank peer) const;
  void accept(Rank peer, const Message& invitation);
  void open_mailboxes();
  bool has_mailboxes() const { return has_mailboxes_; }

  bool may_get_letters(Rank peer) const { return peers_[index(peer)].letters_open; }
  // Not while a message is under way: the letter would have to wait behind it, and its receiver would not be
  // woken in time.
  bool takes_letter(Rank peer, std::uint32_t payload) const {
    const Peer& to = peers_[index(peer)];
    return payload <= letter_payload && to.calls_with_messages == 0 && is_quiet(to);
  }
  // One of the two ranks had to be woken. Messages do that by themselves: both send them for a while,
  // beginning with what woke, and count the calls.
  void prefer_messages(Rank peer) { peers_[index(peer)].calls_with_messages = calls_with_messages; }
  void count_call(Rank peer) {
    if (std::uint32_t& calls = peers_[index(peer)].calls_with_messages; calls != 0) --calls;
  }
  // A letter of it may come: its count may be ahead of ours.
  bool expects_letters(Rank peer) const {
    const Peer& from = peers_[index(peer)];
    return from.letters_open && from.calls_with_messages <= calls_apart;
  }
  // Where to put the payload of the next one together; null when there is no room now. Then it is sent.
  std::byte* letter_place(Rank peer, std::uint32_t payload);
  Result<void> send_letter(Rank peer, std::uint32_t payload, const MessageBuffer& header,
                           std::uint64_t sequence);
  // Where the peer's letter of this call ends, whether or not it is there.
  std::byte* letter_from(Rank peer, std::uint64_t sequence) const {
    return letter_end(peers_[index(peer)].mailbox.get(), sequence);
  }
  // The letter of this call (in network byte order) has come.
  bool has_letter(Rank peer, std::uint64_t sequence, std::uint64_t sequence_be) const {
    return has_mailboxes_ && sequence_be != 0 && peers_[index(peer)].mailbox != nullptr &&
           peek(letter_from(peer, sequence) - sizeof sequence_be) == sequence_be;
  }
  // Tells the peer that we sleep in this call; false when it does not know yet. Whether the peer has told us.
  bool say_asleep(Rank peer, std::uint64_t sequence_be);
  bool is_asleep(Rank peer, std::uint64_t sequence_be) const {
    return peek(peers_[index(peer)].mailbox.get() + sleeper_offset) == sequence_be;
  }

  // Ranks with our address, this one included.
  int ranks_here() const;
  // Why everybody may be silent: empty, or that our own address went away.
  std::string own_fault() const { return own_address_.loss(); }

  // Hands what has completed to `listener`; how much that was.
  int poll(Listener& listener);

  // To sleep: arm, poll once more, then wait until descriptor() is readable, then drain.
  int descriptor() const { return channel_->fd; }
  Result<void> arm();
  void drain();

  // All queue pairs to ERR: afterwards nobody reads or writes our memory.
  void break_all();

  // Zeroed memory that a peer WRITEs to, as the device likes it best.
  Result<PeerWritten> allocate_for_peer(std::size_t bytes);
  Result<verbs::MemoryRegion> register_memory(void* address, std::size_t bytes, int access) {
    return verbs::register_memory(provider_, pd_.get(), address, bytes, access);
  }

 private:
  struct Peer {
    // What the peer writes to; destroyed after who uses it.
    PeerWritten mailbox;
    verbs::MemoryRegion mailbox_region;
    std::uint64_t remote_mailbox = 0;
    std::uint32_t remote_mailbox_key = 0;
    bool letters_open = false;
    std::uint32_t last_message = 0;          // the number after the last one that letters do not overtake
    std::uint64_t said_asleep = UINT64_MAX;  // in which call, in network byte order
    std::uint32_t calls_with_messages = 0;   // to go, before letters are sent again
    std::uint32_t letters = 0;               // sent
    std::array<std::uint32_t, letters_in_flight> letter_numbers{};  // of the send after the place's last one
    std::byte* letter_places = nullptr;
    verbs::QueuePair qp;
    verbs::QpAddress local, remote;
    std::byte* receive_slots = nullptr;
    std::byte* send_slots = nullptr;
    std::byte* parcel_slots = nullptr;
    std::uint32_t parcels = 0;                                      // sent from slots
    std::array<std::uint32_t, parcels_in_flight> parcel_numbers{};  // of the send after the slot's last one
    std::uint32_t inline_bytes = 0;
    std::uint32_t posted = 0,
                  retired = 0;           // send work requests; a polled completion retires all up to its own
    std::uint32_t unsignaled = 0;        // since the last one that asks for a completion
    std::vector<std::uint32_t> cookies;  // of the WRITEs, by send slot

    // Whether all that was posted before send `number` is over. Numbers wrap around.
    bool is_retired(std::uint32_t number) const { return static_cast<std::int32_t>(retired - number) >= 0; }
  };

  Connections(verbs::Provider& provider, const verbs::GidChoice& gid, Rank rank, int size)
      : provider_(provider),
        gid_(gid),
        own_address_(gid.gid),
        rank_(rank),
        receive_bytes_(static_cast<std::uint32_t>(message_bytes) + parcel_bytes(size)),
        peers_(static_cast<std::size_t>(size)) {}
  static std::size_t index(Rank peer) { return static_cast<std::size_t>(peer.value); }
  Result<void> create_objects(ibv_context* context);
  Result<void> check_room(ibv_context* context, int entries_per_peer, int peer_count);
  Result<void> create_peer(Rank peer, std::uint32_t mtu_bytes);
  static bool is_quiet(const Peer& peer) { return peer.letters_open && peer.is_retired(peer.last_message); }
  Result<void> create_mailbox(Peer& peer);
  Result<void> write_to_mailbox(Rank peer, const std::byte* from, std::uint32_t bytes, std::uint64_t offset,
                                bool signaled = false);
  std::byte* next_parcel(const Peer& peer, std::uint32_t bytes) {
    return bytes <= peer.inline_bytes
               ? inline_parcel_.data()
               : peer.parcel_slots + std::size_t{peer.parcels % parcels_in_flight} * receive_bytes_;
  }
  std::size_t slot_bytes_per_peer() const {
    return std::size_t{receive_depth + parcels_in_flight} * receive_bytes_ +
           std::size_t{send_depth} * message_bytes + letters_in_flight * letter_bytes;
  }
  Result<void> post_receive(Rank peer, std::uint32_t slot);
  Result<void> post(Rank peer, ibv_send_wr& request);
  // Of bytes in our slots; taken away at once if they are short. `sge` must outlive it.
  static ibv_send_wr request_for(const Peer& peer, ibv_wr_opcode opcode, ibv_sge& sge);
  void handle(const ibv_wc& completion, Listener& listener);
  void handle_receive(Rank peer, const ibv_wc& completion, Listener& listener);
  void handle_send(Rank peer, const ibv_wc& completion, Listener& listener);
  Error broken(Rank peer, const ibv_wc& completion) const;

  verbs::Provider& provider_;
  verbs::GidChoice gid_;
  verbs::OwnAddress own_address_;
  Rank rank_;
  const std::uint32_t receive_bytes_;                           // of a slot for what arrives
  std::array<std::byte, inline_bytes_wanted> inline_parcel_{};  // copied by the card when it is posted
  bool has_mailboxes_ = false;
  // Destroyed from the bottom: queue pairs before what they use.
  std::vector<std::byte> slots_;  // per peer: what arrives, messages that leave, parcels that leave
  verbs::ProtectionDomain pd_;
  verbs::CompletionChannel channel_;
  verbs::CompletionQueue cq_;
  verbs::MemoryRegion slots_region_;
  std::vector<Peer> peers_;  // ours is empty
};

}  // namespace beeline::exec
