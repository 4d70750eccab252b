// Several providers as one: their devices in one list, in the order of the providers. A call
// goes to the provider that its object came from.
#pragma once

#include <memory>
#include <vector>

#include "verbs/provider.h"

namespace beeline::verbs {

// A provider that cannot list its devices counts as one without any; why is logged once.
std::unique_ptr<Provider> make_joined_provider(std::vector<std::unique_ptr<Provider>> providers);

}  // namespace beeline::verbs
