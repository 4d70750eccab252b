#include "exec/communicator.h"

#include <algorithm>

#include "exec/connections/establish.h"
#include "exec/progress/progress.h"
#include "exec/validate.h"

namespace beeline::exec {
namespace {

class VerbsCommunicator : public Communicator {
 public:
  VerbsCommunicator(const CommunicatorOptions& options, Control& control,
                    std::unique_ptr<Connections> connections, Staging staging, Bell seat_bell,
                    Bell thread_bell)
      : rank_(options.rank),
        size_(options.size),
        progress_(options, control, std::move(connections), std::move(staging),
                  std::make_shared<Seat>(std::move(seat_bell)), std::move(thread_bell)) {}

  Result<std::shared_ptr<Work>> submit(const Call& call) override {
    BEELINE_TRY_VOID(validate(call, rank_, size_));
    return progress_.submit(call);
  }
  Result<void> run(const Call& call) override {
    BEELINE_TRY_VOID(validate(call, rank_, size_));
    return progress_.run(call);
  }
  void abort(std::string reason) override { progress_.abort(std::move(reason)); }
  Stats stats() const override { return progress_.stats(); }

 private:
  Rank rank_;
  int size_;
  Progress progress_;
};

Result<void> check(const CommunicatorOptions& options) {
  if (options.size < 1)
    return fail(Errc::invalid_argument, "a group has at least one rank, not {}", options.size);
  if (options.rank.value < 0 || options.rank.value >= options.size)
    return fail(Errc::invalid_argument, "rank {} is not in a group of {}", options.rank.value, options.size);
  if (options.piece_bytes < 8 || options.piece_bytes % 8 != 0)
    return fail(Errc::invalid_argument, "a piece size of {} bytes: use a positive multiple of 8",
                options.piece_bytes);
  return {};
}

// "For ever" must not overflow when it is added to now.
CommunicatorOptions with_finite_times(CommunicatorOptions options) {
  constexpr Duration longest = std::chrono::hours(24 * 365);
  for (Duration* time : {&options.operation_timeout, &options.warn_after, &options.connect_timeout})
    *time = std::clamp(*time, Duration{}, longest);
  return options;
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::create(const CommunicatorOptions& wanted,
                                                           verbs::Provider& provider, ibv_context* context,
                                                           const verbs::GidChoice& gid, Control& control) {
  BEELINE_TRY_VOID(check(wanted));
  const CommunicatorOptions options = with_finite_times(wanted);
  const Terms terms{.size = options.size,
                    .communicator = communicator_id(options.name, options.size),
                    .piece_bytes = options.piece_bytes};
  BEELINE_TRY(auto connections,
              establish(provider, context, gid, options.rank, terms, control, options.connect_timeout));
  auto staging = Staging::create(*connections, options.piece_bytes);
  auto seat_bell = Bell::create(), thread_bell = Bell::create();
  if (!staging || !seat_bell || !thread_bell) {  // the others believe that all is well
    Error error = !staging ? staging.error() : !seat_bell ? seat_bell.error() : thread_bell.error();
    control.broadcast_failure(error);
    return tl::unexpected<Error>(std::move(error));
  }
  return std::make_unique<VerbsCommunicator>(options, control, std::move(connections), std::move(*staging),
                                             std::move(*seat_bell), std::move(*thread_bell));
}

}  // namespace beeline::exec
