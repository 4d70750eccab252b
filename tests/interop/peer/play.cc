#include "play.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace beeline::interop {
namespace {

using Clock = std::chrono::steady_clock;
// An emulated machine on a loaded host, under loss, is slow; only a hang takes longer.
constexpr Duration patience = 90s;

// One end of a case under way.
struct Play {
  const Case& which;
  bool requester;
  Station& station;
  Control& control;
  Json statuses = Json::array();
  std::string wrong{};

  void complain(const std::string& what) {
    if (wrong.empty()) wrong = what;
  }
  Result<void> meet() {
    return control.exchange("meet", patience).map([](const Json&) {});
  }
};

std::string compare_completion(const Play& play, const ibv_wc& got, std::size_t slice, std::size_t message) {
  const std::uint32_t size = play.station.layout().sizes[message];
  if (got.status != IBV_WC_SUCCESS)
    return fmt::format("message {} ended with status {}", message, static_cast<int>(got.status));
  if (got.wr_id != work_id(slice, message))
    return fmt::format("completion of work {:#x} where {:#x} was due", got.wr_id, work_id(slice, message));
  if (play.requester) return {};
  if (got.byte_len != size)
    return fmt::format("message {} has byte_len {}, sent were {}", message, got.byte_len, size);
  if (!carries_immediate(play.which.operation)) return {};
  if ((got.wc_flags & IBV_WC_WITH_IMM) == 0) return fmt::format("message {} lost its immediate", message);
  const auto immediate = static_cast<std::uint32_t>(work_id(slice, message)) ^ 0x5EED0000u;
  if (be32toh(got.imm_data) != immediate)
    return fmt::format("message {} has immediate {:#x}, sent was {:#x}", message, be32toh(got.imm_data),
                       immediate);
  return {};
}

// Every message of every queue pair completed, once, in order.
Result<void> expect_all(Play& play) {
  const std::size_t messages = play.station.layout().sizes.size();
  const std::size_t slices = play.station.slices().size();
  BEELINE_TRY(const auto all, play.station.wait(messages * slices, patience));
  if (all.size() < messages * slices)
    play.complain(fmt::format("{} of {} completions came in time", all.size(), messages * slices));
  std::vector<std::size_t> next(slices, 0);
  for (const ibv_wc& completion : all) {
    play.statuses.push_back(static_cast<int>(completion.status));
    const std::size_t slice = completion.wr_id >> 16;
    if (slice >= slices || next[slice] >= messages) {
      play.complain(fmt::format("completion of work {:#x}, which is none of ours", completion.wr_id));
      break;
    }
    if (const auto fault = compare_completion(play, completion, slice, next[slice]); !fault.empty())
      play.complain(fmt::format("queue pair {}: {}", slice, fault));
    ++next[slice];
  }
  return {};
}

Result<void> post_receives(Play& play) {
  if (!takes_receive(play.which.operation)) return {};
  const Layout& layout = play.station.layout();
  for (std::size_t slice = 0; slice < play.station.slices().size(); ++slice)
    for (std::size_t i = 0; i < layout.sizes.size(); ++i) {
      std::uint32_t bytes = layout.sizes[i];
      if (play.which.fault == Fault::short_receive) --bytes;
      BEELINE_TRY_VOID(play.station.post_receive(slice, i, bytes));
    }
  return {};
}

Result<void> post_messages(Play& play) {
  const std::size_t messages = play.station.layout().sizes.size();
  for (std::size_t i = 0; i < messages; ++i)
    for (std::size_t slice = 0; slice < play.station.slices().size(); ++slice)
      BEELINE_TRY_VOID(play.station.post_message(slice, i, 0));
  return {};
}

// A case without a fault, or whose fault heals.
Result<void> good_requester(Play& play) {
  const bool read = play.which.operation == Operation::read;
  if (!read) play.station.fill(true);
  BEELINE_TRY_VOID(play.meet());
  BEELINE_TRY_VOID(post_messages(play));
  BEELINE_TRY_VOID(expect_all(play));
  if (read) play.complain(play.station.check_received(false));
  return play.meet();
}

Result<void> good_responder(Play& play) {
  const bool read = play.which.operation == Operation::read;
  const bool late = play.which.fault == Fault::late_receive;
  if (read) play.station.fill(false);
  if (!late) BEELINE_TRY_VOID(post_receives(play));
  BEELINE_TRY_VOID(play.meet());
  if (late) {
    std::this_thread::sleep_for(300ms);
    BEELINE_TRY_VOID(post_receives(play));
  }
  if (takes_receive(play.which.operation)) BEELINE_TRY_VOID(expect_all(play));
  BEELINE_TRY_VOID(play.meet());
  if (!read) play.complain(play.station.check_received(true));
  return {};
}

// One more message after a failed one: its completion says that it was flushed.
Result<void> expect_flush(Play& play) {
  BEELINE_TRY_VOID(play.station.post_message(0, 0, 0));
  BEELINE_TRY(const auto after, play.station.wait(1, patience));
  if (after.empty()) {
    play.complain("what was posted after the failure never completed");
    return {};
  }
  play.statuses.push_back(static_cast<int>(after[0].status));
  if (after[0].status != IBV_WC_WR_FLUSH_ERR)
    play.complain(fmt::format("what was posted after the failure completed with status {}, not flushed",
                              static_cast<int>(after[0].status)));
  return {};
}

Result<void> judge_failure(Play& play, const ibv_wc& completion) {
  const int status = completion.status;
  play.statuses.push_back(status);
  if (std::find(play.which.requester.begin(), play.which.requester.end(), status) ==
      play.which.requester.end())
    play.complain(fmt::format("status {} where {} was due", status, play.which.requester.back()));
  if (status == IBV_WC_SUCCESS) return {};
  if (const auto state = play.station.state(0); state != IBV_QPS_ERR)
    play.complain(
        fmt::format("the queue pair is in state {} after the failure, not in ERR", static_cast<int>(state)));
  return expect_flush(play);
}

Result<void> faulty_requester(Play& play) {
  play.station.fill(true);
  if (play.which.fault == Fault::requester_unmapped) play.station.slices()[0].memory->unmap();
  BEELINE_TRY_VOID(play.meet());
  BEELINE_TRY_VOID(play.station.post_message(0, 0, play.which.fault == Fault::bad_lkey ? wrong_key : 0));
  BEELINE_TRY(const auto completions, play.station.wait(1, patience));
  if (completions.empty())
    play.complain("the message never completed");
  else
    BEELINE_TRY_VOID(judge_failure(play, completions[0]));
  return play.meet();
}

bool keeps_memory(Fault fault) {
  return fault != Fault::short_receive && fault != Fault::responder_unmapped &&
         fault != Fault::requester_unmapped;
}

Result<void> faulty_responder(Play& play) {
  if (play.which.fault != Fault::no_receive) BEELINE_TRY_VOID(post_receives(play));
  if (play.which.fault == Fault::responder_unmapped) play.station.slices()[0].memory->unmap();
  BEELINE_TRY_VOID(play.meet());
  BEELINE_TRY_VOID(play.meet());  // the requester has its status
  const bool due = play.which.responder >= 0;
  BEELINE_TRY(const auto completions, play.station.wait(1, due ? patience : Duration(300ms)));
  for (const ibv_wc& completion : completions) play.statuses.push_back(static_cast<int>(completion.status));
  if (due && (completions.empty() || completions[0].status != play.which.responder))
    play.complain(fmt::format("the receive should have ended with status {}", play.which.responder));
  if (keeps_memory(play.which.fault)) play.complain(play.station.check_untouched());
  if (play.which.fault == Fault::short_receive) play.complain(play.station.check_margins());
  return {};
}

// Messages one after the other, until the responder's queue pair is gone.
Result<void> stream_until_failure(Play& play) {
  play.station.fill(true);
  BEELINE_TRY_VOID(play.meet());
  const auto deadline = Clock::now() + patience;
  for (;;) {
    BEELINE_TRY_VOID(play.station.post_message(0, 0, 0));
    BEELINE_TRY(const auto completions, play.station.wait(1, patience));
    if (completions.empty() || Clock::now() > deadline) {
      play.complain("the peer's queue pair is gone, and no message failed");
      break;
    }
    if (completions[0].status == IBV_WC_SUCCESS) continue;
    BEELINE_TRY_VOID(judge_failure(play, completions[0]));
    break;
  }
  return play.meet();
}

Result<void> destroy_in_the_middle(Play& play) {
  const std::uint32_t size = play.station.layout().sizes[0];
  const bool receives = takes_receive(play.which.operation);
  for (int i = 0; receives && i < 32; ++i) BEELINE_TRY_VOID(play.station.post_receive(0, 0, size));
  BEELINE_TRY_VOID(play.meet());
  const auto end = Clock::now() + 300ms;
  std::size_t taken = 0;
  while (Clock::now() < end) {
    BEELINE_TRY(const auto completions, play.station.wait(1, 1ms));
    if (completions.empty()) continue;
    ++taken;
    if (receives) BEELINE_TRY_VOID(play.station.post_receive(0, 0, size));
  }
  play.station.destroy_queue_pairs();
  BEELINE_TRY_VOID(play.meet());
  if (receives && taken == 0) play.complain("no message arrived before the queue pair was destroyed");
  return {};
}

Result<void> act(Play& play) {
  if (play.which.fault == Fault::none || play.which.fault == Fault::late_receive)
    return play.requester ? good_requester(play) : good_responder(play);
  if (play.which.fault == Fault::destroyed)
    return play.requester ? stream_until_failure(play) : destroy_in_the_middle(play);
  return play.requester ? faulty_requester(play) : faulty_responder(play);
}

}  // namespace

Result<Json> play(const Card& card, const Case& which, bool requester, std::uint32_t mtu_bytes,
                  Control& control) {
  BEELINE_TRY(Station station, Station::open(card, which, requester, mtu_bytes));
  BEELINE_TRY(const Json other, control.exchange(station.introduction(), patience));
  BEELINE_TRY_VOID(station.connect(other));
  Play under_way{which, requester, station, control};
  BEELINE_TRY_VOID(under_way.meet());
  BEELINE_TRY_VOID(act(under_way));
  return Json{{"statuses", under_way.statuses},
              {"state", static_cast<int>(station.state(0))},
              {"wrong", under_way.wrong}};
}

}  // namespace beeline::interop
