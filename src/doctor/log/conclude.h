// From a story to a diagnosis: who failed first, why, and what only followed.
#pragma once

#include "doctor/log/diagnose.h"
#include "doctor/log/story.h"

namespace beeline::doctor::log {

// The story must be settled and complete.
Diagnosis conclude(const Story& story);

// One sentence about an event, without where.
std::string what_happened(const Event& event);

}  // namespace beeline::doctor::log
