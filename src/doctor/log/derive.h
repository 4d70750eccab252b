// Symptoms that no single line says: they follow from several, or from what two hosts say apart.
#pragma once

#include "doctor/log/story.h"

namespace beeline::doctor::log {

// Adds them to the story, which must be settled.
void derive(Story& story);

// A rank that keeps others waiting, as far as the logs show it.
struct Late {
  std::string rank, host;
  std::string cause;  // the id of a cause of watchdog-timeout; empty if nothing tells
  std::string text;
  std::vector<const Event*> evidence;
};
Late who_is_late(const Story& story);

}  // namespace beeline::doctor::log
