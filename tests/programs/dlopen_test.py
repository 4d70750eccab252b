"""Programs that load libibverbs by dlopen get the card too, and the hook leaves every other dlopen as it is."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from place import PRELOAD, on_card, run

LISTS = """
import ctypes
v = ctypes.CDLL({name!r})
v.ibv_get_device_list.restype = ctypes.c_void_p
count = ctypes.c_int()
assert v.ibv_get_device_list(ctypes.byref(count)) and count.value > 0
v.ibv_wc_status_str.restype = ctypes.c_char_p
assert v.ibv_wc_status_str(0) == b'success', 'what the hook does not export comes from the real library'
"""

# A program whose RUNPATH alone leads to the library that it loads: glibc asks where dlopen returns to.
RUNPATH = {
    "found.c": "int found(void) { return 42; }\n",
    "program.c": """#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void* library = dlopen("libfound.so", RTLD_NOW);
  if (!library) { puts(dlerror()); return 1; }
  return ((int (*)(void))dlsym(library, "found"))() == 42 ? 0 : 2;
}
""",
}


class Dlopen(unittest.TestCase):
    def test_by_name_and_by_path(self):
        path = run("sh", "-c", "/sbin/ldconfig -p | sed -n 's/.*libibverbs.so.1 .*=> //p' | head -1").stdout.strip()
        for name in ("libibverbs.so.1", "libibverbs.so", path):
            done = run(*on_card(sys.executable, "-c", LISTS.format(name=name)))
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)

    def test_the_callers_runpath_counts(self):
        with tempfile.TemporaryDirectory() as directory:
            for name, text in RUNPATH.items():
                Path(directory, name).write_text(text)
            Path(directory, "lib").mkdir()
            build = [["cc", "-shared", "-fPIC", "found.c", "-o", "lib/libfound.so"],
                     ["cc", "program.c", "-o", "program", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/lib"]]
            for words in build:
                subprocess.run(words, cwd=directory, check=True)
            done = run(*on_card(Path(directory, "program")))
            self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_a_process_that_has_both_libraries_has_one_engine(self):
        """libbeeline.so's functions are the preloaded ones, which share the card that the verbs use."""
        code = """
import ctypes, os
library = ctypes.CDLL({library!r})
everybody = ctypes.CDLL(None)
address = lambda f: ctypes.cast(f, ctypes.c_void_p).value
maps = [line.split() for line in open('/proc/self/maps')]
def home(value):
    for words in maps:
        low, high = (int(x, 16) for x in words[0].split('-'))
        if low <= value < high:
            return os.path.basename(words[-1])
assert home(address(everybody.beeline_comm_create)) == 'libbeeline-preload.so'
assert home(address(library.beeline_comm_create)) == 'libbeeline.so'
"""
        done = run(*on_card(sys.executable, "-c", code.format(library=str(PRELOAD.parent / "libbeeline.so"))))
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
