// The device list that programs see: the machine's own devices first, the card's behind them.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "preload/engine.h"
#include "preload/verbs/names.h"

namespace beeline::preload {

class DeviceLists {
 public:
  ibv_device** make(int* count);
  void free(ibv_device** list);

  // The card's device that a pointer of one of its lists means. The parent's pointers go on to work in a
  // fork's child, where the card is another: libraries keep them over a fork. Null for all others.
  ibv_device* resolve(ibv_device* device);

 private:
  struct Part {  // of a merged list: what its library gave
    ibv_device** devices = nullptr;
    verbs::FullProvider* provider = nullptr;  // null: the real library
  };

  std::mutex lock_;
  std::map<ibv_device**, std::vector<Part>> lists_;  // handed out, not freed yet
  // Every device of the card that was ever listed, with the provider it came from.
  std::map<ibv_device*, verbs::FullProvider*> seen_;
};
DeviceLists& device_lists();

}  // namespace beeline::preload
