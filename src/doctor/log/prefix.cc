#include "doctor/log/prefix.h"

#include <algorithm>
#include <array>
#include <optional>

#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

constexpr int most_prefixes = 8;

bool is_name(char c) { return is_letter(c) || is_digit(c) || c == '-' || c == '_' || c == '.'; }

std::size_t digits_at(std::string_view text, std::size_t from) {
  std::size_t end = from;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - from;
}

// The inside of a bracket at the front; `after_bracket` gets what follows it.
std::optional<std::string_view> bracket(std::string_view text, std::string_view& after_bracket) {
  if (text.empty() || text.front() != '[') return std::nullopt;
  const auto end = text.find(']');
  if (end > 200) return std::nullopt;
  after_bracket = text.substr(end + 1);
  return text.substr(1, end - 1);
}

void skip_colon_and_blanks(std::string_view& text) {
  if (!text.empty() && text.front() == ':') text.remove_prefix(1);
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
}

// "[rank3]:", "[trainer0|3]:", "[default3]:" of torchrun and TorchX.
bool take_torch(Line& line) {
  std::string_view rest;
  const auto inside = bracket(line.body, rest);
  if (!inside) return false;
  static constexpr std::array<std::string_view, 4> roles = {"rank", "trainer", "default", "worker"};
  for (const auto role : roles) {
    if (!starts(*inside, role)) continue;
    std::string_view digits = inside->substr(role.size());
    if (const auto bar = digits.find('|'); bar != digits.npos) digits.remove_prefix(bar + 1);
    digits = trimmed(digits);
    if (digits.empty() || digits_at(digits, 0) != digits.size()) continue;
    if (rest.empty() || rest.front() != ':') continue;
    // A default role counts per host.
    if (role == "rank" || (role == "trainer" && line.rank.empty())) line.rank = digits;
    skip_colon_and_blanks(rest);
    line.body = rest;
    return true;
  }
  return false;
}

// "[1,3]<stderr>:" of mpirun, "[prterun-host-1234@1,3]<stdout>:" of Open MPI 5.
bool take_mpirun(Line& line) {
  std::string_view rest;
  const auto inside = bracket(line.body, rest);
  if (!inside || rest.empty() || rest.front() != '<') return false;
  const auto comma = inside->rfind(',');
  const auto end = rest.find('>');
  if (comma == inside->npos || end == rest.npos || end > 16) return false;
  const std::string_view rank = inside->substr(comma + 1);
  if (rank.empty() || digits_at(rank, 0) != rank.size()) return false;
  line.rank = rank;
  rest.remove_prefix(end + 1);
  skip_colon_and_blanks(rest);
  line.body = rest;
  return true;
}

// "[pod/trainer-0/pytorch] " of kubectl --prefix.
bool take_kubectl(Line& line) {
  std::string_view rest;
  const auto inside = bracket(line.body, rest);
  if (!inside || !starts(*inside, "pod/")) return false;
  std::string_view pod = inside->substr(4);
  line.host = pod.substr(0, pod.find('/'));
  skip_colon_and_blanks(rest);
  line.body = rest;
  return true;
}

// "(trainer pid=123, ip=10.0.0.4) " of Ray.
bool take_ray(Line& line) {
  if (line.body.empty() || line.body.front() != '(') return false;
  const auto end = line.body.find(')');
  if (end == line.body.npos || end > 120) return false;
  const std::string_view inside = line.body.substr(1, end - 1);
  const auto at = find(inside, " pid=");
  if (at == inside.npos) return false;
  line.pid = inside.substr(at + 5, digits_at(inside, at + 5));
  if (const std::string_view host = word_after(inside, "ip="); !host.empty()) line.host = host;
  line.body.remove_prefix(end + 1);
  skip_colon_and_blanks(line.body);
  return true;
}

// "[worker-1] ", as collectors of several containers or hosts write.
bool take_bracketed_name(Line& line) {
  std::string_view rest;
  const auto inside = bracket(line.body, rest);
  if (!inside || inside->empty() || inside->size() > 64 ||
      !(rest.empty() || rest.front() == ' ' || rest.front() == ':'))
    return false;
  if (!std::all_of(inside->begin(), inside->end(), is_name) ||
      !std::any_of(inside->begin(), inside->end(), is_digit) || !is_letter(inside->front()))
    return false;
  // Devices, interfaces and ranks are no hosts.
  for (const std::string_view other :
       {"rank", "gpu", "cuda", "mlx", "bnxt", "irdma", "efa", "eth", "ib", "bond", "local"})
    if (starts(*inside, other)) return false;
  if (line.host.empty()) line.host = *inside;
  skip_colon_and_blanks(rest);
  line.body = rest;
  return true;
}

// "[80746] ", the process that a collector read from.
bool take_bare_number(Line& line) {
  std::string_view rest;
  const auto inside = bracket(line.body, rest);
  if (!inside || inside->empty() || digits_at(*inside, 0) != inside->size() || !starts(rest, " ["))
    return false;
  line.body = trimmed(rest);
  return true;
}

// "3: " of srun --label, "node7: " of pdsh and clush, "worker-1  | " of compose.
bool take_label(Line& line, bool may_be_host) {
  const std::string_view text = line.body;
  std::size_t end = 0;
  while (end < text.size() && end < 80 && is_name(text[end])) ++end;
  if (end == 0) return false;
  const std::string_view label = text.substr(0, end);
  std::string_view rest = text.substr(end);
  const bool bar = starts(trimmed(rest), "| ") && !rest.empty() && rest.front() == ' ';
  if (!bar && !starts(rest, ": ") && rest != ":") return false;
  if (digits_at(label, 0) == label.size()) {
    if (label.size() > 6) return false;
    line.rank = label;
  } else {
    const bool is_stream = label == "stderr" || label == "stdout";
    // "Error: …" and "mlx5_0: …" are no hosts: those have a digit, and no underscore.
    const bool host_like = std::any_of(label.begin(), label.end(), is_digit) &&
                           label.find('_') == label.npos && !starts(label, "mlx5") &&
                           !starts(label, "rank") && label.find(".c") == label.npos;
    if (!is_stream && !(may_be_host && host_like) && !bar) return false;
    if (!is_stream && line.host.empty()) line.host = label;
  }
  rest = trimmed(rest);
  rest.remove_prefix(rest.empty() ? 0 : 1);
  while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
  line.body = rest;
  return true;
}

// "stderr F " of a container runtime, behind its time.
bool take_container_stream(Line& line) {
  for (const std::string_view mark : {"stderr F ", "stdout F ", "stderr P ", "stdout P "}) {
    if (!starts(line.body, mark)) continue;
    line.body.remove_prefix(mark.size());
    return true;
  }
  return false;
}

// "host kernel: [123.4] …" of syslog, behind its time.
bool take_syslog(Line& line) {
  const auto at = find(line.body.substr(0, 200), " kernel: ");
  if (at == line.body.npos || line.kernel) return false;
  const std::string_view host = line.body.substr(0, at);
  if (host.empty() || !std::all_of(host.begin(), host.end(), is_name)) return false;
  if (line.host.empty()) line.host = host;
  line.kernel = true;
  line.body.remove_prefix(at + 9);
  return true;
}

// "host:pid:tid [device] " of NCCL, "[host:pid:tid] " of UCX, "[host:pid] " of Open MPI.
bool take_host_and_pid(Line& line) {
  std::string_view text = line.body;
  const bool in_bracket = !text.empty() && text.front() == '[';
  if (in_bracket) text.remove_prefix(1);
  std::size_t end = 0;
  while (end < text.size() && end < 200 && is_name(text[end])) ++end;
  if (end == 0 || end >= text.size() || text[end] != ':') return false;
  const std::string_view host = text.substr(0, end);
  const std::size_t pid_digits = digits_at(text, end + 1);
  const bool hidden_pid = pid_digits == 0 && starts(text.substr(end + 1), "XX");
  if (pid_digits == 0 && !hidden_pid) return false;
  const std::string_view pid = text.substr(end + 1, pid_digits);
  std::size_t at = end + 1 + pid_digits;
  while (at < text.size() && (is_digit(text[at]) || text[at] == ':' || text[at] == 'X')) ++at;
  std::string_view rest = text.substr(at);
  if (in_bracket) {
    rest = trimmed(rest);
    if (rest.empty() || rest.front() != ']') return false;
    rest.remove_prefix(1);
  } else {
    // Without a bracket only NCCL writes so: "host:1:2 [0] …". A path with a line number does not.
    std::string_view behind;
    const std::string_view blank = trimmed(rest);
    const auto device = bracket(blank, behind);
    const bool numbered =
        device && !device->empty() && (digits_at(*device, 0) == device->size() || *device == "-1");
    if (!numbered && !starts(blank, "NCCL ")) return false;
    line.nccl = true;
    rest = numbered ? behind : blank;
  }
  line.host = host;
  line.pid = pid;
  line.body = trimmed(rest);
  return true;
}

// A JSON log line of a container runtime: {"log":"…\n","stream":"stderr","time":"…"}.
std::optional<std::string> unwrapped(std::string_view text) {
  if (!starts(text, "{\"")) return std::nullopt;
  for (const std::string_view key : {"\"log\":\"", "\"message\":\"", "\"msg\":\"", "\"textPayload\":\""}) {
    const auto value = after(text, key);
    if (!value) continue;
    std::string plain;
    for (std::size_t i = 0; i < value->size() && (*value)[i] != '"'; ++i) {
      const char c = (*value)[i];
      if (c != '\\' || i + 1 >= value->size()) {
        plain += c;
        continue;
      }
      const char escaped = (*value)[++i];
      if (escaped == 'u') {
        const auto code = hex(value->substr(i + 1, 4));
        plain += code && *code >= 0x20 && *code < 0x7F ? static_cast<char>(*code) : ' ';
        i = std::min(i + 4, value->size() - 1);
      } else {
        plain += escaped == 'n' || escaped == 't' || escaped == 'r' ? ' ' : escaped;
      }
    }
    return plain;
  }
  return std::nullopt;
}

bool take_time(Line& line) {
  std::string_view rest = line.body;
  const auto stamp = take_stamp(rest);
  if (!stamp) return false;
  // dmesg writes seconds since boot in brackets, or with -T a weekday.
  const bool weekday = line.body.size() > 4 && line.body[0] == '[' && is_letter(line.body[1]) &&
                       line.body[4] == ' ' && is_letter(line.body[5 < line.body.size() ? 5 : 4]);
  if (stamp->clock == Clock::boot || weekday) line.kernel = true;
  if (!line.front) line.front = stamp;
  if (line.stamps.has(stamp->clock)) line.inner[stamp->clock] = stamp->seconds;
  // A collector's time may be when it read the line; the kernel's is when it happened.
  if (!line.stamps.has(stamp->clock) || weekday) line.stamps[stamp->clock] = stamp->seconds;
  if (line.when.empty()) line.when = line.body.substr(0, line.body.size() - rest.size());
  skip_colon_and_blanks(rest);
  line.body = rest;
  return true;
}

std::uint64_t hash(std::uint64_t seed, std::string_view text) {
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return seed;
}

}  // namespace

Line take_apart(std::string_view text, std::uint64_t number, std::string& storage) {
  Line line;
  line.number = number;
  if (auto plain = unwrapped(trimmed(text))) {
    storage = std::move(*plain);
    text = storage;
  }
  line.whole = text;
  line.body = text;
  int labels = 0;
  for (int i = 0; i < most_prefixes; ++i) {
    // Indentation is part of what tools say; only behind a prefix it separates.
    std::string_view kept = line.body;
    while (!line.body.empty() && is_blank(line.body.front())) line.body.remove_prefix(1);
    // Open MPI and others may write "| " in front of everything.
    if (starts(line.body, "| ")) line.body.remove_prefix(2);
    if (take_torch(line) || take_mpirun(line) || take_kubectl(line) || take_ray(line) || take_time(line) ||
        take_bare_number(line) || (i == 0 && take_bracketed_name(line)) || take_container_stream(line) ||
        take_syslog(line))
      continue;
    if (take_host_and_pid(line)) break;
    if (labels < 2 && take_label(line, true)) {
      ++labels;
      continue;
    }
    line.body = kept;
    break;
  }
  if (!line.when.empty()) line.when = trimmed(line.when);
  std::uint64_t stream = 0xCBF29CE484222325u;
  stream = hash(hash(hash(stream, line.rank), "/"), line.host);
  line.stream =
      line.rank.empty() && line.host.empty() ? 0 : hash(hash(stream, line.pid), line.nccl ? "n" : "");
  return line;
}

}  // namespace beeline::doctor::log
