#!/usr/bin/env python3
"""The include-graph test must be able to fail: small trees with one broken rule each."""
import pathlib
import tempfile
import unittest

from include_graph import violations


class IncludeGraph(unittest.TestCase):
    def broken(self, files):
        with tempfile.TemporaryDirectory(prefix="beeline-layers-") as root:
            for name, text in files.items():
                path = pathlib.Path(root) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return violations(pathlib.Path(root))[0]

    def test_a_clean_tree_passes(self):
        self.assertEqual(self.broken({"src/base/a.h": "#include <vector>\n",
                                      "src/wire/b.cc": '#include "base/a.h"\n'}), [])

    def test_an_upward_include_is_found(self):
        self.assertEqual(len(self.broken({"src/nic/a.h": "", "src/wire/b.cc": '#include "nic/a.h"\n'})), 1)

    def test_angle_brackets_do_not_hide_it(self):
        self.assertEqual(len(self.broken({"src/nic/a.h": "", "src/wire/b.cc": "#  include <nic/a.h>\n"})), 1)

    def test_nic_knows_the_port_only_by_its_interface(self):
        files = {"src/port/port.h": "", "src/port/udp/u.h": ""}
        self.assertEqual(self.broken({**files, "src/nic/a.cc": '#include "port/port.h"\n'}), [])
        self.assertEqual(len(self.broken({**files, "src/nic/a.cc": '#include "port/udp/u.h"\n'})), 1)
        self.assertEqual(self.broken({**files, "src/nic/a_test.cc": '#include "port/udp/u.h"\n'}), [])

    def test_operations_do_not_know_reliability(self):
        files = {"src/proto/reliability/r.h": ""}
        self.assertEqual(len(self.broken({**files, "src/proto/ops/o.cc": '#include "proto/reliability/r.h"\n'})), 1)

    def test_plugins_see_only_the_public_api(self):
        files = {"src/base/a.h": "", "include/beeline/beeline.h": ""}
        self.assertEqual(self.broken({**files, "plugins/torch/p.cc": "#include <beeline/beeline.h>\n"}), [])
        self.assertEqual(len(self.broken({**files, "plugins/torch/p.cc": '#include "base/a.h"\n'})), 1)

    def test_an_unknown_folder_is_found(self):
        self.assertEqual(len(self.broken({"src/misc/a.cc": ""})), 1)


if __name__ == "__main__":
    unittest.main()
