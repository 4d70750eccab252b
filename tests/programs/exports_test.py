"""What the two libraries export, held against the installed libibverbs. An object of ours that reaches a function of
the real library would be followed into memory that is not there, so every public function must be ours, or listed
here as one that takes no object."""

import re
import subprocess
import unittest

from place import BUILD, PRELOAD

# They take numbers, structures of the caller or ranges of memory, never something that hangs on a device.
FALL_THROUGH = {
    "ibv_copy_ah_attr_from_kern", "ibv_copy_path_rec_from_kern", "ibv_copy_path_rec_to_kern",
    "ibv_copy_qp_attr_from_kern", "ibv_dofork_range", "ibv_dontfork_range", "ibv_event_type_str", "ibv_fork_init",
    "ibv_get_sysfs_path", "ibv_is_fork_initialized", "ibv_node_type_str", "ibv_port_state_str", "ibv_rate_to_mbps",
    "ibv_rate_to_mult", "ibv_read_sysfs_file", "ibv_wc_status_str", "mbps_to_ibv_rate", "mult_to_ibv_rate",
}
# Of the private interface, but programs use it. Without a version, because its version changes with each release.
PRIVATE = {"ibv_query_gid_type"}


def exports(library):
    """name -> default version (empty without one)"""
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True)
    found = {}
    for line in listed.stdout.splitlines():
        kind, name = line.split()[-2:]
        if kind in "TWiBDV" and ("@@" in name or "@" not in name):
            base, _, version = name.partition("@@")
            found[base] = version
    return found


def installed():
    for line in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines():
        if re.match(r"\s*libibverbs\.so\.1 ", line):
            return line.split()[-1]
    raise AssertionError("libibverbs.so.1 is not installed")


class Exports(unittest.TestCase):
    def test_every_public_function_is_ours_under_its_version(self):
        real = {name: version for name, version in exports(installed()).items() if "PRIVATE" not in version}
        ours = exports(PRELOAD)
        missing = {name: version for name, version in real.items()
                   if ours.get(name) != version and name not in FALL_THROUGH}
        self.assertEqual(missing, {}, "public functions of the installed libibverbs that reach it with our objects")

    def test_the_private_one_that_programs_use(self):
        real, ours = exports(installed()), exports(PRELOAD)
        for name in PRIVATE:
            self.assertIn(name, real)
            self.assertEqual(ours.get(name), "")

    def test_no_version_and_no_name_that_the_real_library_does_not_have(self):
        real = exports(installed())
        invented = [name for name, version in exports(PRELOAD).items() if version and real.get(name) != version]
        self.assertEqual(invented, [])

    def test_no_cxx_leaks(self):
        self.assertEqual([name for name in exports(PRELOAD) if name.startswith("_Z")], [])

    def test_it_has_the_public_api_too(self):
        library = exports(BUILD / "lib/libbeeline.so")
        self.assertTrue(library)
        self.assertEqual(set(library) - set(exports(PRELOAD)), set())

    def test_the_library_alone_interposes_nothing(self):
        self.assertEqual([name for name in exports(BUILD / "lib/libbeeline.so") if not name.startswith("beeline_")], [])

    def test_it_needs_the_real_library(self):
        dynamic = subprocess.run(["readelf", "-d", str(PRELOAD)], check=True, capture_output=True, text=True).stdout
        self.assertIn("[libibverbs.so.1]", dynamic)


if __name__ == "__main__":
    unittest.main(verbosity=2)
