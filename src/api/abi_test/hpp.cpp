// beeline.hpp as a C++ program sees it: a group of one.
#include <beeline/beeline.hpp>
#include <cstdio>
#include <vector>

namespace {

int failures = 0;
void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s does not hold\n", what);
  ++failures;
}

template <class T>
void exchange(beeline::Communicator& group, T value) {
  const std::vector<T> in(5, value);
  std::vector<T> out(5);
  group.all_reduce(std::span(in), std::span(out));
  group.all_reduce(std::span(out), BEELINE_MAX);
  group.all_gather(std::span(in), std::span(out));
  group.reduce_scatter(std::span(in), std::span(out), BEELINE_AVG);
  auto work = group.broadcast_async(std::span(out), 0);
  expect(work.wait_for(std::chrono::seconds(10)), "wait_for");
  expect(work.done(), "done");
}

template <class Exception, class Body>
void expect_throw(Body body, const char* what) {
  try {
    body();
  } catch (const Exception&) {
    return;
  }
  expect(false, what);
}

}  // namespace

int main() {
  auto group = beeline::Communicator::create(0, 1, "127.0.0.1:1");
  expect(group.rank() == 0 && group.size() == 1, "a group of one");
  exchange<float>(group, 1.5f);
  exchange<beeline::bfloat16>(group, beeline::bfloat16{0x3F80});
  exchange<std::int32_t>(group, -7);
  exchange<std::int64_t>(group, -7);
  exchange<std::uint8_t>(group, 7);
  group.barrier();
  expect(group.stats().operations == 26, "26 operations counted");

  std::vector<float> short_buffer(1), long_buffer(2);
  expect_throw<std::invalid_argument>(
      [&] { group.all_reduce(std::span<const float>(short_buffer), std::span(long_buffer)); },
      "a size that does not fit");
  expect_throw<beeline::Error>([&] { group.broadcast(std::span(short_buffer), 9); },
                               "a root outside the group");
  try {
    (void)beeline::Communicator::create(3, 2, "127.0.0.1:1");
    expect(false, "a rank outside the group");
  } catch (const beeline::Error& error) {
    expect(error.status() == BEELINE_INVALID_ARGUMENT && std::string(error.what()).size() > 10,
           "an error that says why");
  }
  auto moved = std::move(group);
  moved.abort("the test is over");
  expect_throw<beeline::Error>([&] { moved.barrier(); }, "an aborted group");
  return failures == 0 ? 0 : 1;
}
