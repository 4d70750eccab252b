// --check: what each end fills before a round and verifies behind it.
#pragma once

#include "perf/endpoint.h"
#include "perf/pattern.h"

namespace beeline::perf {

// Who owns the data of a direction: the initiator of WRITE and SEND, the responder of READ.
struct Roles {
  bool is_server = false;
  bool initiates = false;
  bool source = false;  // the peer gets data from here
  bool sink = false;    // data of the peer arrives here
};
Roles roles_of(const Plan& plan, bool is_server);

void add(Verdict& total, const Verdict& more);
// Compares one message and adds what it found.
void verify_message(Verdict& verdict, Bytes message, const PatternKey& key);

// Bandwidth: all places of a round.
void fill_round(Endpoint& end, const Round& round, const Roles& roles);
Verdict verify_round(Endpoint& end, const Round& round, const Roles& roles);

}  // namespace beeline::perf
