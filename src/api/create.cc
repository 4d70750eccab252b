// beeline_comm_create and its options: who meets where, on which device.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "api/arguments.h"
#include "api/handles.h"
#include "api/process.h"
#include "api/status.h"
#include "base/clock.h"
#include "base/log.h"

namespace beeline::api {
namespace {

// The key-value store of the caller.
class CallerStore final : public bootstrap::Store {
 public:
  explicit CallerStore(const beeline_store& store) : store_(store) {}

  Result<void> set(const std::string& key, Bytes value) override {
    if (store_.set(store_.user, key.c_str(), value.data(), value.size()) != 0)
      return fail(Errc::io, "the caller's store does not take the key {}", key);
    return {};
  }
  Result<std::vector<std::byte>> get(const std::string& key, Duration timeout) override {
    const auto timeout_ms =
        std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::milliseconds>(timeout).count());
    const auto start = monotonic_now();
    std::vector<std::byte> value(capacity);
    std::size_t bytes = 0;
    if (store_.get(store_.user, key.c_str(), value.data(), value.size(), &bytes,
                   static_cast<std::uint64_t>(timeout_ms)) != 0) {
      // A store says only that it failed. Early by a little is late all the same: clocks differ.
      const bool late = monotonic_now() - start >= timeout * 9 / 10;
      return fail(late ? Errc::timed_out : Errc::io, "the caller's store does not give the key {}", key);
    }
    if (bytes > value.size())
      return fail(Errc::protocol, "the caller's store says that the key {} has {} bytes", key, bytes);
    value.resize(bytes);
    return value;
  }

 private:
  static constexpr std::size_t capacity = std::size_t{64} * 1024;
  const beeline_store store_;
};

// What the caller's options come to.
struct Plan {
  bootstrap::GroupOptions group;
  std::string meeting_point;
  const beeline_store* store = nullptr;
  std::string device;
  Duration operation_timeout{};
};

Result<beeline_comm_options> copy_options(const beeline_comm_options* given) {
  beeline_comm_options options;
  beeline_comm_options_init(&options);
  if (given == nullptr) return fail(Errc::invalid_argument, "options is NULL");
  // This is the first version of the struct, so no caller has a smaller one.
  if (given->struct_bytes < sizeof options)
    return fail(Errc::invalid_argument, "options->struct_bytes is {}: call beeline_comm_options_init first",
                given->struct_bytes);
  std::memcpy(&options, given, sizeof options);
  return options;
}

Result<void> take_place_from_environment(Plan& plan) {
  BEELINE_TRY(const auto environment, bootstrap::from_torchrun([](std::string_view name) {
                const char* value = std::getenv(std::string(name).c_str());
                return value == nullptr ? std::nullopt : std::optional<std::string>(value);
              }));
  plan.group.rank = environment.rank;
  plan.group.size = environment.size;
  plan.meeting_point = environment.host_port;
  return {};
}

Result<Plan> make_plan(const beeline_comm_options& options, const Config& config) {
  Plan plan;
  plan.group.rank = Rank{options.rank};
  plan.group.size = options.size;
  if (options.name != nullptr) plan.group.name = options.name;
  BEELINE_TRY(plan.group.timeout,
              checked_seconds("connect_timeout_seconds", options.connect_timeout_seconds, 60s));
  BEELINE_TRY(plan.operation_timeout,
              checked_seconds("timeout_seconds", options.timeout_seconds, config.operation_timeout));
  plan.device = options.device != nullptr ? options.device : config.device;
  plan.store = options.store;
  if (plan.store != nullptr && (plan.store->set == nullptr || plan.store->get == nullptr))
    return fail(Errc::invalid_argument, "options->store lacks its set or get function");
  if (plan.store == nullptr && options.rendezvous != nullptr) plan.meeting_point = options.rendezvous;
  if (plan.store == nullptr && options.rendezvous == nullptr)
    BEELINE_TRY_VOID(take_place_from_environment(plan));
  return plan;
}

Result<std::unique_ptr<bootstrap::Group>> meet(const Plan& plan) {
  if (plan.store == nullptr) return bootstrap::Group::meet_at(plan.group, plan.meeting_point);
  CallerStore store(*plan.store);
  return bootstrap::Group::meet(plan.group, store);
}

// Device, GID and connections to all peers.
Result<void> connect(beeline_comm& comm, const Plan& plan, Process& process) {
  verbs::Provider& provider = *process.provider;
  BEELINE_TRY(comm.context, verbs::open_device(provider, plan.device));
  comm.device = provider.get_device_name(comm.context->device);
  BEELINE_TRY(const verbs::GidChoice gid,
              verbs::choose_gid(provider, comm.context.get(), 1, process.config.gid_index));
  exec::CommunicatorOptions options;
  options.rank = plan.group.rank;
  options.size = plan.group.size;
  options.name = plan.group.name;
  options.operation_timeout = plan.operation_timeout;
  options.warn_after = process.config.warn_after;
  options.connect_timeout = plan.group.timeout;
  auto executor = exec::Communicator::create(options, provider, comm.context.get(), gid, *comm.control);
  if (!executor)
    return fail(executor.error().code, "{} [device {}, GID {}: {}]", executor.error().message, comm.device,
                gid.index, to_string(gid.gid));
  comm.executor = std::move(*executor);
  return {};
}

Result<void> create(const beeline_comm_options* given, beeline_comm** out) {
  if (out == nullptr) return fail(Errc::invalid_argument, "the place for the new communicator is NULL");
  *out = nullptr;
  BEELINE_TRY(const beeline_comm_options options, copy_options(given));
  BEELINE_TRY(Process* const process, this_process());
  BEELINE_TRY(const Plan plan, make_plan(options, process->config));
  auto comm = std::make_unique<beeline_comm>();
  comm->generation = generation();
  comm->rank = plan.group.rank;
  comm->size = plan.group.size;
  BEELINE_TRY(comm->group, meet(plan));
  comm->control = std::make_unique<GroupControl>(*comm->group);
  enlist(comm->group.get());
  if (auto connected = connect(*comm, plan, *process); !connected) {
    strike_off(comm->group.get());
    // The others wait for us: let them fail now, and with our reason.
    comm->group->broadcast_failure(
        {connected.error().code,
         fmt::format("{}: {}", comm->group->describe(comm->rank), connected.error().message)});
    return connected;
  }
  logger()->debug("group '{}' formed: {} of {}, on device {}", plan.group.name,
                  comm->group->describe(comm->rank), comm->size, comm->device);
  *out = comm.release();
  return {};
}

}  // namespace
}  // namespace beeline::api

void beeline_comm_options_init(beeline_comm_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_bytes = sizeof *options;
  options->size = 1;
}

beeline_status beeline_comm_create(const beeline_comm_options* options, beeline_comm** comm) {
  return beeline::api::guarded([&] { return beeline::api::create(options, comm); });
}
