// What a program calls an rdma_cm_id, as the kernel would keep it.
#pragma once

#include <memory>
#include <optional>

#include "port/udp/service.h"
#include "preload/ucma/addresses.h"
#include "preload/ucma/file.h"
#include "proto/cm/manager.h"
#include "wire/cm/service_id.h"

namespace beeline::preload::ucma {

enum class Stage : std::uint8_t {
  idle,
  bound,
  address_resolved,
  route_resolved,
  connecting,  // asked, and no answer yet; or asked, and the user has not answered yet
  connected,   // or on the way there, or from there
  listening,
};

struct Identifier {
  std::uint32_t number = 0;
  std::uint64_t uid = 0;  // the program's; 0: it does not know of this one yet
  File* file = nullptr;
  wire::cm::PortSpace space{};
  proto::cm::Offer offer{};  // what its queue pair is for
  Stage stage = Stage::idle;
  bool passive = false;
  std::uint32_t events_reported = 0;

  Endpoint source, destination;
  std::shared_ptr<port::ServiceReservation> reservation;
  std::optional<DevicePlace> place;  // the device that has `source`

  std::uint8_t type_of_service = 0;
  std::uint8_t ack_timeout = 0;  // 0: the usual one
  bool reuse_address = false, one_family = false;

  proto::cm::ListenerId listener;
  std::uint32_t owner = 0;  // of a request that waits: the number of the listener
  std::optional<proto::cm::CommId> connection;
  proto::cm::LocalEnd local_end;
  proto::cm::RemoteEnd remote_end;

  bool is_datagram() const { return offer == proto::cm::Offer::datagrams; }
  // As in the kernel, a loopback address that is only bound to stands for any device: libfabric asks for
  // "localhost", and then looks at the devices that are left.
  bool shows_device() const {
    const bool only_bound = stage == Stage::bound || stage == Stage::listening;
    return place && !(only_bound && source.address.is_loopback());
  }
  std::uint64_t service_id(std::uint16_t port) const { return wire::cm::service_id(space, port); }
};

}  // namespace beeline::preload::ucma
