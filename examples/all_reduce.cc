// Every rank contributes a vector; every rank gets the sum.
//
//   torchrun --nproc-per-node=2 --no-python ./all_reduce
// or, in as many shells as there are ranks:
//   ./all_reduce --rank 0 --size 2 --rendezvous 127.0.0.1:29500
//   ./all_reduce --rank 1 --size 2 --rendezvous 127.0.0.1:29500
#include <beeline/beeline.hpp>
#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

static int number(const std::string& name, const std::string& text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end)
    throw std::invalid_argument(name + " '" + text + "': give a whole number");
  return value;
}

static beeline::Communicator join(int argc, char** argv) {
  if (argc == 1) return beeline::Communicator::create();  // the environment says who we are
  int rank = 0, size = 1;
  std::string rendezvous;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--rank")
      rank = number(name, value);
    else if (name == "--size")
      size = number(name, value);
    else if (name == "--rendezvous")
      rendezvous = value;
    else
      throw std::invalid_argument("usage: all_reduce [--rank R --size N --rendezvous HOST:PORT]");
  }
  return beeline::Communicator::create(rank, size, rendezvous);
}

int main(int argc, char** argv) try {
  auto group = join(argc, argv);
  std::vector<float> numbers(1'000'000, 1.0f + static_cast<float>(group.rank()));

  group.all_reduce(std::span(numbers));

  std::printf("rank %d of %d: the sum of 1 ... %d is %g, over %s\n", group.rank(), group.size(), group.size(),
              static_cast<double>(numbers.front()), group.stats().device);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "all_reduce: %s\n", error.what());
  return 1;
}
