#include "verbs/system/quiet.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/log.h"

namespace beeline::verbs::system {

Quiet::Quiet() : real_(stderr), collecting_(open_memstream(&text_, &bytes_)) {
  if (collecting_ != nullptr) stderr = collecting_;
}

Quiet::~Quiet() {
  if (collecting_ == nullptr) return;
  stderr = real_;
  std::fflush(collecting_);
  std::string_view rest(text_, bytes_);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.starts_with("lib"))  // "libibverbs: Warning: …", "libmlx5: …"
      logger()->debug("verbs: {}", line);
    else
      std::fprintf(real_, "%.*s\n", static_cast<int>(line.size()), line.data());
  }
  std::fclose(collecting_);
  std::free(text_);
}

}  // namespace beeline::verbs::system
