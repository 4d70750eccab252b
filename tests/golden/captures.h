// The captured sessions by name.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "support/pcap.h"

namespace beeline::test {

inline Capture load_golden(const std::string& name) {
  auto capture = read_pcap(std::string(BEELINE_GOLDEN_DIR) + "/" + name);
  EXPECT_TRUE(capture) << capture.error().message;
  return capture ? *std::move(capture) : Capture{};
}

}  // namespace beeline::test
