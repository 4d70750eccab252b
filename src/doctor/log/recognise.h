// The table of what lines say: a text to look for, and a function that reads the rest.
#pragma once

#include <span>
#include <string_view>

#include "doctor/log/event.h"

namespace beeline::doctor::log {

// `rest` is what follows the text. The function fills in the event, its kind too where the row leaves it
// open (count_), and says whether the line means that after all.
using Extract = bool (*)(const Line& line, std::string_view rest, Event& event);

struct Recogniser {
  std::string_view anchor;
  Kind kind;
  Extract extract;
};

// Of one row and line at most one event; the first symptom of a line is the one that counts.
std::span<const Recogniser>
verbs_recognisers();  // NCCL's network, UCX, perftest, Open MPI: completions, queue pairs, memory
std::span<const Recogniser>
set_up_recognisers();  // what NCCL chose: devices, interfaces, paths, versions, environment
std::span<const Recogniser> process_recognisers();  // PyTorch, launchers, schedulers, Python
std::span<const Recogniser> kernel_recognisers();   // dmesg and the GPU driver

// "remote access error", "IBV_WC_RETRY_EXC_ERR": in words for a status, and back.
std::string_view status_in_words(std::int64_t status);
Kind kind_of_status(std::int64_t status);

}  // namespace beeline::doctor::log
