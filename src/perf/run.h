// A whole test: agree, connect, run every size, compare notes.
#pragma once

#include "perf/channel.h"
#include "perf/endpoint.h"
#include "perf/result.h"

namespace beeline::perf {

// The end that decides. `device` was opened from `options`.
Result<Report> run_client(const Options& options, OpenDevice& device, Channel& channel, Observer& observer);

// The end that adopts. Fails when the client asks for another test than `options.test`.
// `greeted` tells whether a Beeline client was there at all.
Result<Report> run_server(const Options& options, OpenDevice& device, Channel& channel, Observer& observer,
                          bool* greeted = nullptr);

}  // namespace beeline::perf
