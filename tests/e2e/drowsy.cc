// One rank of a group whose ranks come to each call at random times: now at once, now so late that the others
// have gone to sleep, now just when they do. Every sum is checked. letters_test.py starts it.
//
//   drowsy RANK SIZE HOST:PORT CALLS SEED
#include <beeline/beeline.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using std::chrono::microseconds;

// Ranks first yield for some tens of microseconds and then sleep (exec/progress/driving.cc): most pauses lie
// around that moment.
microseconds pause(std::mt19937& random) {
  const auto below = [&](unsigned limit) { return static_cast<int>(random() % limit); };
  switch (random() % 8) {
    case 0:
      return microseconds(0);
    case 1:
      return microseconds(below(3000));
    default:
      return microseconds(below(200));
  }
}

void wait_for(microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  if (time > microseconds(1000)) return std::this_thread::sleep_for(time);
  while (std::chrono::steady_clock::now() < end) {
  }
}

void call(beeline::Communicator& group, int number) {
  std::vector<std::int64_t> values(1 + static_cast<std::size_t>(number % 100));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = number + static_cast<std::int64_t>(i) * (group.rank() + 1);
  group.all_reduce(std::span(values));
  const std::int64_t size = group.size(), ranks = size * (size + 1) / 2;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != number * size + static_cast<std::int64_t>(i) * ranks)
      throw std::runtime_error("call " + std::to_string(number) + ": element " + std::to_string(i) + " is " +
                               std::to_string(values[i]));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) throw std::invalid_argument("usage: drowsy RANK SIZE HOST:PORT CALLS SEED");
  const int rank = std::atoi(argv[1]), calls = std::atoi(argv[4]);
  auto group = beeline::Communicator::create(rank, std::atoi(argv[2]), argv[3]);
  std::mt19937 random(static_cast<unsigned>(std::atoi(argv[5])) * 1000u + static_cast<unsigned>(rank));
  for (int number = 0; number < calls; ++number) {
    wait_for(pause(random));
    call(group, number);
  }
  std::printf("%d calls\n", calls);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "drowsy: %s\n", error.what());
  return 1;
}
