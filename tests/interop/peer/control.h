// The TCP connection on which the two ends agree: one JSON value per line. Every wait has a
// deadline.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/descriptor.h"
#include "base/result.h"
#include "base/time.h"

namespace beeline::interop {

using Json = nlohmann::json;

class Control {
 public:
  explicit Control(Descriptor socket) : socket_(std::move(socket)) {}

  // Waits (at most `patience`) for one peer.
  static Result<Control> accept(const std::string& address, std::uint16_t port, Duration patience);
  static Result<Control> connect(const std::string& address, std::uint16_t port, Duration patience);

  Result<void> send(const Json& value);
  Result<Json> receive(Duration patience);
  // What this end says for what the other one says.
  Result<Json> exchange(const Json& mine, Duration patience);

 private:
  Descriptor socket_;
  std::string received_;
};

}  // namespace beeline::interop
