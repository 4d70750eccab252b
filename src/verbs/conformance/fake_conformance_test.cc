#include "verbs/conformance/conformance.h"
#include "verbs/fake/fake_provider.h"

namespace beeline::verbs::conformance {
namespace {

class FakeRig : public Rig {
 public:
  explicit FakeRig(const FakeOptions& options) : provider_(make_fake_provider(options)) {}
  Provider& provider() override { return *provider_; }

 private:
  std::unique_ptr<FakeProvider> provider_;
};

RigFactory factory(std::string name, FakeOptions::Delivery delivery) {
  return {std::move(name), [delivery]() -> Result<std::unique_ptr<Rig>> {
            FakeOptions options;
            options.delivery = delivery;
            options.devices[0].active_mtu_bytes = 1024;
            // As hardware tables look: an empty slot, a link-local address, then what one wants.
            options.devices[0].gids = {Gid{}, *parse_address("fe80::1"), Gid::v4(10, 99, 0, 1)};
            return std::make_unique<FakeRig>(options);
          }};
}

const auto fakes = testing::Values(factory("immediate", FakeOptions::Delivery::immediate),
                                   factory("threaded", FakeOptions::Delivery::threaded));
std::string name_of(const testing::TestParamInfo<RigFactory>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Fake, Objects, fakes, name_of);
INSTANTIATE_TEST_SUITE_P(Fake, Messages, fakes, name_of);
INSTANTIATE_TEST_SUITE_P(Fake, Failures, fakes, name_of);
INSTANTIATE_TEST_SUITE_P(Fake, Events, fakes, name_of);

}  // namespace
}  // namespace beeline::verbs::conformance
