// The path through dlopen, alone and joined with other providers.
#include "verbs/conformance/conformance.h"
#include "verbs/fake/fake_provider.h"
#include "verbs/joined/joined_provider.h"
#include "verbs/system/fake_library/settings.h"
#include "verbs/system/system_provider.h"

namespace beeline::verbs::conformance {
namespace {

class ProviderRig : public Rig {
 public:
  explicit ProviderRig(std::unique_ptr<Provider> provider) : provider_(std::move(provider)) {}
  Provider& provider() override { return *provider_; }

 private:
  std::unique_ptr<Provider> provider_;
};

std::unique_ptr<Provider> make_system() {
  fresh_fake_library(FAKE_IBVERBS_CURRENT);
  return make_system_provider({FAKE_IBVERBS_CURRENT, "/"});
}

std::unique_ptr<Provider> join(std::unique_ptr<Provider> first, std::unique_ptr<Provider> second) {
  std::vector<std::unique_ptr<Provider>> providers;
  providers.push_back(std::move(first));
  providers.push_back(std::move(second));
  return make_joined_provider(std::move(providers));
}

RigFactory factory(std::string name, std::unique_ptr<Provider> (*make)()) {
  return {std::move(name),
          [make]() -> Result<std::unique_ptr<Rig>> { return std::make_unique<ProviderRig>(make()); }};
}

const auto providers = testing::Values(
    factory("system", make_system),
    factory("system_first", [] { return join(make_system(), make_fake_provider()); }),
    factory("fake_first",
            []() -> std::unique_ptr<Provider> { return join(make_fake_provider(), make_system()); }));
std::string name_of(const testing::TestParamInfo<RigFactory>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(System, Objects, providers, name_of);
INSTANTIATE_TEST_SUITE_P(System, Messages, providers, name_of);
INSTANTIATE_TEST_SUITE_P(System, Failures, providers, name_of);
INSTANTIATE_TEST_SUITE_P(System, Events, providers, name_of);

}  // namespace
}  // namespace beeline::verbs::conformance
