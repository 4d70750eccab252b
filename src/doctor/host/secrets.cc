#include "doctor/host/secrets.h"

#include <fmt/format.h>

#include <array>
#include <regex>

#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

constexpr std::size_t longest_line = 16384;  // std::regex recurses; nothing we read has longer lines

struct Rule {
  std::regex pattern;
  const char* replacement;
};

const std::vector<Rule>& rules() {
  static const auto flags = std::regex::ECMAScript | std::regex::icase | std::regex::optimize;
  static const std::string secret_word =
      "(?:passw|passphrase|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|cookie|"
      "auth[_-]?key|license[_-]?key|psk)";
  static const std::vector<Rule> all = {
      {std::regex("([a-z][a-z0-9+.-]*://)[^/@ \\t\"']+@", flags), "$1[removed]@"},
      {std::regex("((?:proxy-)?authorization[\"']?[ \\t]*[:=]).*", flags), "$1 [removed]"},
      {std::regex("(\\bbearer[ \\t]+)[^ \\t\"']+", flags), "$1[removed]"},
      {std::regex("([?&](?:sig|signature|x-amz-signature|x-goog-signature|key)=)[^& \\t\"']+", flags),
       "$1[removed]"},
      {std::regex(
           "(" + secret_word + "[a-z0-9_.-]*[\"']?[ \\t]*[=:][ \\t]*)(?:\"[^\"]*\"|'[^']*'|[^ \\t,;&]+)",
           flags),
       "$1[removed]"},
      // BEELINE_KEY=, db-pass:, but not pkey=, which is no secret.
      {std::regex("(\\b[a-z0-9][a-z0-9_-]*[_-](?:keys?|pass|pwd|auth)[\"']?[ \\t]*[=:][ \\t]*)"
                  "(?:\"[^\"]*\"|'[^']*'|[^ \\t,;&]+)",
                  flags),
       "$1[removed]"},
      {std::regex("(--?[a-z0-9-]*" + secret_word + "[a-z0-9-]*[ \\t]+)[^ \\t-][^ \\t]*", flags),
       "$1[removed]"},
      {std::regex("\\b(?:AKIA|ASIA)[0-9A-Z]{16}\\b"), "[removed]"},
      {std::regex("\\b(?:gh[pousr]_|github_pat_|glpat-|hf_|xox[abprs]-|sk-|nvapi-|npm_|pypi-|dckr_pat_)[A-Za-"
                  "z0-9_-]{16,}"),
       "[removed]"},
      {std::regex("\\bAIza[0-9A-Za-z_-]{35}"), "[removed]"},
      {std::regex("\\beyJ[A-Za-z0-9_-]{8,}\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]*"), "[removed]"},
  };
  return all;
}

std::string clean_line(const std::string& line) {
  if (line.size() > longest_line) return fmt::format("[a line of {} bytes removed]", line.size());
  auto clean = line;
  for (const auto& rule : rules()) clean = std::regex_replace(clean, rule.pattern, rule.replacement);
  return clean;
}

}  // namespace

std::string without_secrets(std::string_view text) {
  std::string clean;
  bool in_key = false;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    const bool has_newline = end < text.size();
    text.remove_prefix(has_newline ? end + 1 : end);
    const bool begins = contains(line, "-----BEGIN") && contains(line, "PRIVATE KEY");
    const bool ends = contains(line, "-----END") && contains(line, "PRIVATE KEY");
    if (begins && !ends) clean += "[private key removed]\n";
    in_key = (in_key || begins) && !ends;
    if (in_key || begins || ends) continue;
    clean += clean_line(line);
    if (has_newline) clean += '\n';
  }
  return clean;
}

bool may_record_variable(std::string_view name) {
  constexpr std::array prefixes = {"NCCL_",
                                   "RCCL_",
                                   "UCX_",
                                   "BEELINE_",
                                   "GLOO_",
                                   "TORCH_NCCL_",
                                   "TORCH_DISTRIBUTED_",
                                   "FI_",
                                   "OMPI_MCA_btl",
                                   "OMPI_MCA_pml",
                                   "OMPI_MCA_mtl",
                                   "IBV_",
                                   "RDMAV_",
                                   "MLX5_",
                                   "CUDA_VISIBLE_DEVICES",
                                   "SLURM_JOB_NUM_NODES",
                                   "SLURM_NTASKS",
                                   "WORLD_SIZE",
                                   "LOCAL_WORLD_SIZE",
                                   "KUBERNETES_SERVICE_HOST"};
  for (const auto* prefix : prefixes)
    if (starts_with(name, prefix)) return true;
  return false;
}

}  // namespace beeline::doctor
