#include "cli/json_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

namespace beeline::cli {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

Result<File> open_file(const std::string& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode), std::fclose);
  if (file == nullptr) return fail_errno(errno, "--json " + path);
  return file;
}

}  // namespace

Result<void> probe_file(const std::string& path) {
  const bool existed = ::access(path.c_str(), F_OK) == 0;
  BEELINE_TRY_VOID(open_file(path, "ae"));
  if (!existed) ::unlink(path.c_str());
  return {};
}

Result<void> write_file(const std::string& path, const std::string& text) {
  BEELINE_TRY(auto file, open_file(path, "we"));
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (std::fclose(file.release()) != 0 || !written) return fail_errno(errno, "--json " + path);
  return {};
}

}  // namespace beeline::cli
