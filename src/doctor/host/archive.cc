// The .tar.zst of a recording: one entry per reading that was found, an index of all.
#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "doctor/host/live.h"
#include "doctor/host/recording.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

constexpr auto index_name = "beeline-recording.json";
constexpr std::size_t most_bytes = 256U << 20U, most_entries = 200000;
using Json = nlohmann::json;

struct Writer {
  archive* handle = archive_write_new();
  ~Writer() { archive_write_free(handle); }
};
struct Reader {
  archive* handle = archive_read_new();
  ~Reader() { archive_read_free(handle); }
};

std::string complaint(archive* handle) {
  const char* text = archive_error_string(handle);
  return text == nullptr ? "unknown error" : text;
}

// "file/sys/class/…": readable when unpacked; unique by its kind's suffix.
std::string entry_name(const Question& question) {
  auto name = question.name;
  if (question.kind == Kind::command || question.kind == Kind::fact)
    for (auto& c : name)
      if (c == '/') c = '%';
  while (starts_with(name, "/")) name.erase(0, 1);
  auto path = fmt::format("{}/{}", kind_name(question.kind), name);
  if (question.kind == Kind::directory) path += "/.names";
  if (question.kind == Kind::link) path += ".target";
  return path;
}

bool add(archive* handle, const std::string& name, const std::string& value) {
  archive_entry* entry = archive_entry_new();
  archive_entry_set_pathname(entry, name.c_str());
  archive_entry_set_size(entry, static_cast<la_int64_t>(value.size()));
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_entry_set_perm(entry, 0600);
  const bool written =
      archive_write_header(handle, entry) == ARCHIVE_OK &&
      archive_write_data(handle, value.data(), value.size()) == static_cast<la_ssize_t>(value.size());
  archive_entry_free(entry);
  return written;
}

std::string make_index(const Readings& readings) {
  Json rows = Json::array();
  for (const auto& [question, reading] : readings) {
    Json row = {{"kind", kind_name(question.kind)},
                {"name", question.name},
                {"access", reading.found()        ? "found"
                           : reading.unreadable() ? "unreadable"
                                                  : "absent"}};
    if (reading.found()) row["entry"] = entry_name(question);
    if (!reading.why.empty()) row["why"] = reading.why;
    rows.push_back(std::move(row));
  }
  return Json{{"version", 1}, {"readings", std::move(rows)}}.dump(1, ' ', false,
                                                                  Json::error_handler_t::replace) +
         "\n";
}

std::optional<Kind> kind_of(const std::string& name) {
  for (const auto kind : {Kind::file, Kind::directory, Kind::link, Kind::command, Kind::fact})
    if (kind_name(kind) == name) return kind;
  return std::nullopt;
}

std::string text_of(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// `value_of` gives an entry's contents.
template <class ValueOf>
Result<Readings> from_index(const std::string& index, const std::string& where, ValueOf value_of) {
  const auto document = Json::parse(index, nullptr, false);
  if (!document.is_object() || document.value("version", Json()) != Json(1) ||
      !document.contains("readings") || !document["readings"].is_array())
    return fail(Errc::invalid_argument, "{} is not a recording of `beeline doctor --record`", where);
  Readings readings;
  for (const auto& row : document["readings"]) {
    if (!row.is_object()) continue;
    const auto kind = kind_of(text_of(row, "kind"));
    if (!kind) continue;
    Reading reading;
    reading.question = {*kind, text_of(row, "name")};
    const auto access = text_of(row, "access");
    reading.access = access == "found"    ? Access::found
                     : access == "absent" ? Access::absent
                                          : Access::unreadable;
    reading.why = text_of(row, "why");
    if (reading.found()) reading.value = value_of(text_of(row, "entry"));
    readings.emplace(reading.question, std::move(reading));
  }
  return readings;
}

Result<std::map<std::string, std::string>> unpack(const std::string& path) {
  Reader reader;
  archive_read_support_filter_all(reader.handle);
  archive_read_support_format_tar(reader.handle);
  if (archive_read_open_filename(reader.handle, path.c_str(), 65536) != ARCHIVE_OK)
    return fail(Errc::io, "{} is not a recording: {}", path, complaint(reader.handle));
  std::map<std::string, std::string> entries;
  std::size_t total = 0;
  for (;;) {
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(reader.handle, &entry);
    if (status == ARCHIVE_EOF) return entries;
    if (status != ARCHIVE_OK)
      return fail(Errc::invalid_argument, "{} is not a recording: {}", path, complaint(reader.handle));
    const char* name = archive_entry_pathname(entry);
    std::string& value = entries[name == nullptr ? "" : name];
    char piece[65536];
    for (la_ssize_t count = 0; (count = archive_read_data(reader.handle, piece, sizeof piece)) != 0;) {
      if (count < 0) return fail(Errc::invalid_argument, "{} is damaged: {}", path, complaint(reader.handle));
      value.append(piece, static_cast<std::size_t>(count));
      total += static_cast<std::size_t>(count);
      if (total > most_bytes)
        return fail(Errc::resource_exhausted, "{} holds more than {} MiB; no recording does", path,
                    most_bytes >> 20U);
    }
    if (entries.size() > most_entries)
      return fail(Errc::resource_exhausted, "{} holds more than {} entries; no recording does", path,
                  most_entries);
  }
}

// Of a file below `root`. A name that leads out of it, by "..", a link or from the top, is not from us, nor
// is what is no file; there is nothing in those.
std::string contents(const std::filesystem::path& root, const std::string& name) {
  std::error_code error;
  const auto top = std::filesystem::canonical(root, error);
  const auto path = std::filesystem::canonical(root / name, error);
  if (error || !std::filesystem::is_regular_file(path, error)) return {};
  if (std::mismatch(top.begin(), top.end(), path.begin(), path.end()).first != top.end()) return {};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A copied tree: every path is looked up below `root`, links too.
class CopiedTree : public Evidence {
 public:
  explicit CopiedTree(std::filesystem::path root) : root_(std::move(root)), live_({}) {}

  Reading read(const Question& question) override {
    Reading reading;
    reading.question = question;
    if (question.kind == Kind::command || question.kind == Kind::fact) {
      reading.access = Access::unreadable;
      reading.why = "a copied file tree holds no command output (make one with `beeline doctor --record`)";
      return reading;
    }
    const auto resolved = resolve(question.name);
    std::error_code error;
    if (!std::filesystem::exists(std::filesystem::symlink_status(root_ / resolved.relative_path(), error))) {
      reading.why = "No such file or directory";
      return reading;
    }
    if (question.kind == Kind::link) {
      reading.access = Access::found;
      reading.value = resolved.string();
      return reading;
    }
    reading = live_.read({question.kind, (root_ / resolved.relative_path()).string()});
    reading.question = question;
    return reading;
  }

 private:
  // Links are followed inside the tree only: an absolute target starts at its root again.
  std::filesystem::path resolve(const std::string& name) {
    std::filesystem::path done = "/";
    std::vector<std::string> left = split(name, "/");
    for (int steps = 0; !left.empty() && steps < 256; ++steps) {
      const auto part = left.front();
      left.erase(left.begin());
      if (part == ".") continue;
      if (part == "..") {
        done = done.parent_path();
        continue;
      }
      std::error_code error;
      const auto target = std::filesystem::read_symlink(root_ / (done / part).relative_path(), error);
      if (error) {
        done /= part;
        continue;
      }
      if (target.is_absolute()) done = "/";
      auto parts = split(target.string(), "/");
      left.insert(left.begin(), parts.begin(), parts.end());
    }
    return done;
  }

  std::filesystem::path root_;
  LiveHost live_;
};

}  // namespace

Result<void> write_recording(const std::string& path, const Readings& readings) {
  Writer writer;
  archive_write_add_filter_zstd(writer.handle);
  archive_write_set_format_pax_restricted(writer.handle);
  const mode_t before = ::umask(0077);  // it describes a host; its owner decides who reads it
  const int opened = archive_write_open_filename(writer.handle, path.c_str());
  ::umask(before);
  if (opened != ARCHIVE_OK) return fail(Errc::io, "--record {}: {}", path, complaint(writer.handle));
  bool good = add(writer.handle, index_name, make_index(readings));
  for (const auto& [question, reading] : readings)
    if (good && reading.found()) good = add(writer.handle, entry_name(question), reading.value);
  if (!good || archive_write_close(writer.handle) != ARCHIVE_OK)
    return fail(Errc::io, "--record {}: {}", path, complaint(writer.handle));
  return {};
}

Result<Readings> read_recording(const std::string& path) {
  BEELINE_TRY(auto entries, unpack(path));
  if (entries.count(index_name) == 0)
    return fail(Errc::invalid_argument, "{} is not a recording of `beeline doctor --record`", path);
  return from_index(entries[index_name], path, [&](const std::string& name) { return entries[name]; });
}

Result<std::unique_ptr<Evidence>> open_root(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return fail(Errc::not_found, "--root {}: no such file or directory", path);
  if (!std::filesystem::is_directory(path, error)) {
    BEELINE_TRY(auto readings, read_recording(path));
    return std::make_unique<Recording>(std::move(readings));
  }
  const auto root = std::filesystem::path(path);
  if (!std::filesystem::exists(root / index_name, error)) {
    if (!std::filesystem::exists(root / "sys", error) && !std::filesystem::exists(root / "proc", error))
      return fail(Errc::invalid_argument,
                  "--root {}: neither a recording nor a copy of a host's tree (it has no sys or proc)", path);
    return std::make_unique<CopiedTree>(root);
  }
  BEELINE_TRY(auto readings, from_index(contents(root, index_name), path,
                                        [&](const std::string& name) { return contents(root, name); }));
  return std::make_unique<Recording>(std::move(readings));
}

}  // namespace beeline::doctor
