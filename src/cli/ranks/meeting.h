// The ranks of a job bring their reports to rank 0, which says with which status all of them end.
//
//   rank i -> knock    the job's secret, u32 rank, text host
//   rank 0 -> answer   another secret of the job: only now is it told anything
//   rank i -> report   its text
//   rank 0 -> verdict  u8 status, when all have come or the time is over
//
// A stranger who connects, speaks garbage or says nothing is dropped after a few seconds and a few hundred
// bytes. A star, not a mesh: a rank that does not come costs nobody but itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bootstrap/frame.h"
#include "bootstrap/secret.h"

namespace beeline::cli {

using bootstrap::Secret;

// Equal for equal texts, and different for others; anybody who knows the texts can compute it.
Secret secret_of(std::string_view purpose, std::string_view text);

inline constexpr std::uint32_t most_report_bytes = 8u << 20;

struct Contribution {
  std::string host;  // as it calls itself
  std::string report;
};

// Rank 0's side.
class Collection {
 public:
  // On each address at the first port of `ports` that is free; 0 is any. Addresses where it does not work are
  // left.
  static Result<Collection> open(const std::vector<IpAddress>& addresses,
                                 const std::vector<std::uint16_t>& ports, int size, const Secret& secret);
  const std::vector<bootstrap::Endpoint>& endpoints() const { return endpoints_; }

  // Until all ranks but this one have brought theirs, or the deadline. By rank; none from those who did not
  // come.
  std::vector<std::optional<Contribution>> collect(const bootstrap::Deadline& deadline);
  // Tells those who came, and waits until they have heard it or for a moment.
  void conclude(int status);

 private:
  struct Visitor {
    Descriptor connection;
    bootstrap::FrameReader reader;
    bootstrap::Deadline patience;
    int rank = -1;  // once it has knocked
    std::string host;
    bool dismissed = false;
  };
  Collection(int size, const Secret& secret) : size_(size), secret_(secret) {}
  void accept_from(int listener);
  void hear(Visitor& visitor, std::vector<std::optional<Contribution>>& all);
  bool take(Visitor& visitor, const bootstrap::Frame& frame, std::vector<std::optional<Contribution>>& all);

  int size_;
  Secret secret_;
  std::vector<Descriptor> listeners_;
  std::vector<bootstrap::Endpoint> endpoints_;
  std::vector<Visitor> visitors_;
};

// The others' side: tries all places, again and again, until rank 0 is there or the deadline.
Result<Descriptor> find_rank0(const std::vector<bootstrap::Endpoint>& places, const Secret& secret, int rank,
                              const std::string& host, const bootstrap::Deadline& deadline);
// The status that rank 0 says.
Result<int> bring(const Descriptor& rank0, const std::string& report, const bootstrap::Deadline& deadline);

}  // namespace beeline::cli
