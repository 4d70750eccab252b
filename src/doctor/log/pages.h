// docs/symptoms, made of the table that the diagnosis uses, so that both say the same.
#pragma once

#include <map>
#include <string>

namespace beeline::doctor::log {

// File name -> text: a page per symptom, and README.md with the table of contents.
std::map<std::string, std::string> symptom_pages();

}  // namespace beeline::doctor::log
