// The connections of this process: identifiers of all open files over one connection manager, which is
// the agent of the card's queue pair 1.
//
// Lock order: the card's engine, then this one. So nothing here calls the card with the lock held.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "nic/card.h"
#include "nic/management.h"
#include "preload/ucma/event_type.h"
#include "preload/ucma/identifier.h"

namespace beeline::preload::ucma {

class Host final : public nic::ManagementAgent {
 public:
  explicit Host(nic::Card& card);
  ~Host() override;

  // One command, all of it: header and body. 0, or a negative errno. GET_EVENT says -EAGAIN when there is
  // nothing to get.
  int execute(File& file, Bytes command);
  // Who is who behind the descriptor that MIGRATE_ID names.
  void set_file_of(std::function<std::shared_ptr<File>(int descriptor)> file_of) {
    file_of_ = std::move(file_of);
  }
  // The file is closed: its identifiers are destroyed.
  void release(File& file);

  // The process ends: all identifiers are destroyed, as the kernel does with those of files that are still
  // open. The kernel would go on repeating disconnections after its processes. We cannot, so they are said
  // three times within 60 ms, to peers that have not agreed yet: programs may take long to do so, and the
  // process does not wait for them.
  void part();

  // nic::ManagementAgent
  Verdict handle_mad(TimePoint now, const IpAddress& local, const IpAddress& remote, Bytes mad,
                     bool handed_over) override;
  void handle_timeout(TimePoint now) override;
  TimePoint next_timeout() const override;
  std::size_t poll_transmit(TimePoint now, std::span<nic::OutMad> out) override;

 private:
  using Command = int (Host::*)(File& file, Bytes in, std::uint16_t out_bytes);
  struct Row;
  static const Row* row_of(std::uint32_t command);

  int create_id(File& file, Bytes in, std::uint16_t out_bytes);
  int destroy_id(File& file, Bytes in, std::uint16_t out_bytes);
  int bind_ip(File& file, Bytes in, std::uint16_t out_bytes);
  int bind_any(File& file, Bytes in, std::uint16_t out_bytes);
  int resolve_ip(File& file, Bytes in, std::uint16_t out_bytes);
  int resolve_any(File& file, Bytes in, std::uint16_t out_bytes);
  int resolve_route(File& file, Bytes in, std::uint16_t out_bytes);
  int query_route(File& file, Bytes in, std::uint16_t out_bytes);
  int connect(File& file, Bytes in, std::uint16_t out_bytes);
  int listen(File& file, Bytes in, std::uint16_t out_bytes);
  int accept(File& file, Bytes in, std::uint16_t out_bytes);
  int reject(File& file, Bytes in, std::uint16_t out_bytes);
  int disconnect(File& file, Bytes in, std::uint16_t out_bytes);
  int init_qp_attr(File& file, Bytes in, std::uint16_t out_bytes);
  int get_event(File& file, Bytes in, std::uint16_t out_bytes);
  int set_option(File& file, Bytes in, std::uint16_t out_bytes);
  int notify(File& file, Bytes in, std::uint16_t out_bytes);
  int migrate_id(File& file, Bytes in, std::uint16_t out_bytes);
  int not_offered(File& file, Bytes in, std::uint16_t out_bytes);

  int bind(File& file, std::uint32_t number, const Endpoint& source);
  int resolve(File& file, std::uint32_t number, const std::optional<Endpoint>& source,
              const Endpoint& destination);
  int reserve_port(Identifier& identifier, Endpoint& source);
  bool collides(const Identifier& identifier, const Endpoint& source) const;
  std::shared_ptr<port::ServiceReservation> own_reservation(std::uint64_t service_id) const;
  int open_address(const Endpoint& source);
  int open_management(const IpAddress& local);

  Identifier& make(File& file);
  Identifier* find(const File& file, std::uint32_t number, int& error);
  void destroy(Identifier& identifier);
  void destroy_all(const File* of);  // of every file: nullptr
  void reject_waiting(std::uint32_t listener);
  proto::cm::LocalEnd local_end_of(const Identifier& identifier, const rdma_ucm_conn_param& param) const;
  std::uint8_t path_mtu_of(const DevicePlace& place) const;  // enum ibv_mtu
  proto::cm::ConnectRequest request_of(const Identifier& identifier) const;

  // From the manager to the files.
  void distribute();
  void take_request(const proto::cm::Event& event);
  void take_event(Identifier& identifier, const proto::cm::Event& event);
  void post(Identifier& identifier, EventType event, std::uint32_t status = 0);
  rdma_ucm_event_resp response_for(const Identifier& identifier, EventType event, std::uint32_t status) const;

  nic::Card& card_;
  mutable std::mutex mutex_;
  proto::cm::Manager manager_;
  std::function<std::shared_ptr<File>(int)> file_of_;
  std::uint32_t next_number_ = 1;
  std::unordered_map<std::uint32_t, std::unique_ptr<Identifier>> identifiers_;
  std::map<proto::cm::CommId, std::uint32_t> of_connection_;
  std::map<proto::cm::ListenerId, std::uint32_t> of_listener_;
};

}  // namespace beeline::preload::ucma
