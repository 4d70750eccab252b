#!/usr/bin/env python3
"""Holds every #include of the project against the layer table.

The table is the law that docs/architecture.md explains: a folder may include itself,
what the table lists for it, and system headers. Usage: include_graph.py REPOSITORY
"""
import pathlib
import re
import sys

SOURCES = {".h", ".hpp", ".cc", ".cpp", ".c"}

# folder -> what it may include. "public" is include/beeline. A trailing .h names one header.
ALLOWED = {
    "base": set(),
    "wire": {"base"},
    "proto": {"base", "wire"},
    "port": {"base"},
    "nic": {"base", "wire", "proto", "port/port.h"},
    "verbs": {"base", "nic"},
    "coll": {"base"},
    "exec": {"base", "coll", "verbs"},
    "bootstrap": {"base", "port"},
    "api": {"base", "wire", "proto", "port", "nic", "verbs", "coll", "exec", "bootstrap", "public"},
    "preload": {"base", "wire", "proto", "port", "nic", "verbs", "api"},
    "perf": {"base", "verbs"},
    "bench": {"base", "public"},
    "doctor": {"base", "verbs"},  # doctor/peer pings over queue pairs
    "cli": {"base", "wire", "proto", "port", "nic", "verbs", "coll", "exec", "bootstrap", "api", "preload", "perf",
            "bench", "doctor", "public"},
    "plugins": {"public"},
    "examples": {"public"},
}
# Unit tests may also build what their folder only knows by interface.
TESTS_MAY_ADD = {
    "nic": {"port"},
    "verbs": {"port", "proto", "wire"},
    "exec": {"nic", "port"},
    "perf": {"nic", "port"},
    "bench": {"api"},
}
INSIDE_PROTO = {"ops": {"reliability"}}  # operations know nothing of reliability: both lanes share them
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def folder_of(path, root):
    parts = path.relative_to(root).parts
    return parts[1] if parts[0] == "src" else parts[0]


def target_of(include, root, including):
    """The project folder (and header) that an include names, or None for a system header."""
    if include.startswith("beeline/") and (root / "include" / include).exists():
        return "public", include
    if (root / "src" / include).exists():
        return include.split("/")[0], include
    sibling = including.parent / include
    if sibling.exists():
        return folder_of(sibling.resolve(), root.resolve()), str(sibling.resolve().relative_to(root.resolve()))
    return None


def violations(root):
    root = pathlib.Path(root)
    found = []
    files = [p for top in ("src", "plugins", "examples") for p in (root / top).rglob("*") if p.suffix in SOURCES]
    for path in sorted(files):
        folder = folder_of(path, root)
        if folder not in ALLOWED:
            found.append(f"{path.relative_to(root)}: folder '{folder}' is not in the layer table")
            continue
        is_test = path.stem.endswith("_test")
        allowed = ALLOWED[folder] | (TESTS_MAY_ADD.get(folder, set()) if is_test else set())
        for include in INCLUDE.findall(path.read_text(errors="replace")):
            target = target_of(include, root, path)
            if target is None or target[0] == folder or target[0] in allowed or target[1] in allowed:
                pass
            else:
                found.append(f"{path.relative_to(root)} includes {include}: {folder}/ may not include {target[0]}/")
            if folder == "proto" and path.parent.name in INSIDE_PROTO and not is_test:
                for inner in INSIDE_PROTO[path.parent.name]:
                    if include.startswith(f"proto/{inner}/"):
                        found.append(f"{path.relative_to(root)} includes {include}: ops/ may not know {inner}/")
    return found, len(files)


if __name__ == "__main__":
    broken, count = violations(sys.argv[1])
    print("\n".join(broken) or f"{count} files keep the layers")
    sys.exit(1 if broken or count == 0 else 0)
