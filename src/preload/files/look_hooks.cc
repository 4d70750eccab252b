// Hooks of the functions that look at a file or a directory by its path.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>

#include "preload/files/next.h"
#include "preload/files/path.h"

using beeline::preload::files::hide_tree;
using beeline::preload::files::Path;

BEELINE_HOOK(int, stat, const char* path, struct stat* out) { return BEELINE_NEXT(stat)(Path(path), out); }
BEELINE_HOOK(int, stat64, const char* path, struct stat64* out) {
  return BEELINE_NEXT(stat64)(Path(path), out);
}
BEELINE_HOOK(int, lstat, const char* path, struct stat* out) { return BEELINE_NEXT(lstat)(Path(path), out); }
BEELINE_HOOK(int, lstat64, const char* path, struct stat64* out) {
  return BEELINE_NEXT(lstat64)(Path(path), out);
}
BEELINE_HOOK(int, fstatat, int directory, const char* path, struct stat* out, int flags) {
  return BEELINE_NEXT(fstatat)(directory, Path(path), out, flags);
}
BEELINE_HOOK(int, fstatat64, int directory, const char* path, struct stat64* out, int flags) {
  return BEELINE_NEXT(fstatat64)(directory, Path(path), out, flags);
}
BEELINE_HOOK(int, statx, int directory, const char* path, int flags, unsigned mask, struct statx* out) {
  return BEELINE_NEXT(statx)(directory, Path(path), flags, mask, out);
}

// What programs built against a glibc before 2.33 call.
BEELINE_HOOK(int, __xstat, int version, const char* path, struct stat* out) {
  return BEELINE_NEXT(__xstat)(version, Path(path), out);
}
BEELINE_HOOK(int, __xstat64, int version, const char* path, struct stat64* out) {
  return BEELINE_NEXT(__xstat64)(version, Path(path), out);
}
BEELINE_HOOK(int, __lxstat, int version, const char* path, struct stat* out) {
  return BEELINE_NEXT(__lxstat)(version, Path(path), out);
}
BEELINE_HOOK(int, __lxstat64, int version, const char* path, struct stat64* out) {
  return BEELINE_NEXT(__lxstat64)(version, Path(path), out);
}

BEELINE_HOOK(int, access, const char* path, int mode) { return BEELINE_NEXT(access)(Path(path), mode); }
BEELINE_HOOK(int, faccessat, int directory, const char* path, int mode, int flags) {
  return BEELINE_NEXT(faccessat)(directory, Path(path), mode, flags);
}

BEELINE_HOOK(DIR*, opendir, const char* path) { return BEELINE_NEXT(opendir)(Path(path)); }
BEELINE_HOOK(int, scandir, const char* path, struct dirent*** list, int (*filter)(const struct dirent*),
             int (*compare)(const struct dirent**, const struct dirent**)) {
  return BEELINE_NEXT(scandir)(Path(path), list, filter, compare);
}
BEELINE_HOOK(int, scandir64, const char* path, struct dirent64*** list, int (*filter)(const struct dirent64*),
             int (*compare)(const struct dirent64**, const struct dirent64**)) {
  return BEELINE_NEXT(scandir64)(Path(path), list, filter, compare);
}

BEELINE_HOOK(ssize_t, readlink, const char* path, char* out, std::size_t bytes) {
  return BEELINE_NEXT(readlink)(Path(path), out, bytes);
}
BEELINE_HOOK(ssize_t, readlinkat, int directory, const char* path, char* out, std::size_t bytes) {
  return BEELINE_NEXT(readlinkat)(directory, Path(path), out, bytes);
}
BEELINE_HOOK(ssize_t, __readlink_chk, const char* path, char* out, std::size_t bytes, std::size_t room) {
  return BEELINE_NEXT(__readlink_chk)(Path(path), out, bytes, room);
}

// What `ls -l` asks.
BEELINE_HOOK(ssize_t, getxattr, const char* path, const char* name, void* out, std::size_t bytes) {
  return BEELINE_NEXT(getxattr)(Path(path), name, out, bytes);
}
BEELINE_HOOK(ssize_t, lgetxattr, const char* path, const char* name, void* out, std::size_t bytes) {
  return BEELINE_NEXT(lgetxattr)(Path(path), name, out, bytes);
}
// Relative paths then lead into the tree by themselves.
BEELINE_HOOK(int, chdir, const char* path) { return BEELINE_NEXT(chdir)(Path(path)); }

BEELINE_HOOK(char*, realpath, const char* path, char* out) {
  return hide_tree(BEELINE_NEXT(realpath)(Path(path), out));
}
BEELINE_HOOK(char*, __realpath_chk, const char* path, char* out, std::size_t room) {
  return hide_tree(BEELINE_NEXT(__realpath_chk)(Path(path), out, room));
}
BEELINE_HOOK(char*, canonicalize_file_name, const char* path) {
  return hide_tree(BEELINE_NEXT(canonicalize_file_name)(Path(path)));
}
