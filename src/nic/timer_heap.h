// When which queue pair wants to be woken: a binary heap with the soonest on top. It holds
// each item at most once; `Item` keeps its own place (`timer_place`), and its time (`timer`).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/time.h"

namespace beeline::nic {

template <class Item>
class TimerHeap {
 public:
  static constexpr std::size_t nowhere = SIZE_MAX;

  // So that set() never allocates.
  void reserve(std::size_t items) { heap_.reserve(items); }

  TimePoint soonest() const { return heap_.empty() ? TimePoint::never() : heap_.front()->timer; }
  Item* top() const { return heap_.empty() ? nullptr : heap_.front(); }

  // TimePoint::never() takes it out.
  void set(Item& item, TimePoint when) {
    if (when == TimePoint::never()) return remove(item);
    if (item.timer_place == nowhere) {
      item.timer_place = heap_.size();
      heap_.push_back(&item);
    } else if (item.timer == when) {
      return;
    }
    item.timer = when;
    settle(item.timer_place);
  }

  void remove(Item& item) {
    const std::size_t place = std::exchange(item.timer_place, nowhere);
    item.timer = TimePoint::never();
    if (place == nowhere) return;
    Item* last = heap_.back();
    heap_.pop_back();
    if (last == &item) return;
    put(place, last);
    settle(place);
  }

 private:
  void put(std::size_t place, Item* item) {
    heap_[place] = item;
    item->timer_place = place;
  }

  void settle(std::size_t place) {
    Item* item = heap_[place];
    while (place > 0 && item->timer < heap_[(place - 1) / 2]->timer) {
      put(place, heap_[(place - 1) / 2]);
      place = (place - 1) / 2;
    }
    for (;;) {
      std::size_t child = 2 * place + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1]->timer < heap_[child]->timer) ++child;
      if (!(heap_[child]->timer < item->timer)) break;
      put(place, heap_[child]);
      place = child;
    }
    put(place, item);
  }

  std::vector<Item*> heap_;
};

}  // namespace beeline::nic
