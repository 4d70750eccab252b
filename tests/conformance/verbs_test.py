"""Our own suite over stock libibverbs (verbs/kit.h), on the card: bytes, atomics, datagrams, queues, windows, limits
and refusals. lab:programs runs the same on the kernel's rdma_rxe."""

import os
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BEELINE_BUILD", ROOT / "build"))
SUITE = BUILD / "bin/verbs_conformance"
VERBS = Path(__file__).resolve().parent / "verbs"


def header():
    """<infiniband/verbs.h> as the compiler reads it."""
    return subprocess.run([os.environ.get("CC", "cc"), "-E", "-P", "-"], input="#include <infiniband/verbs.h>\n",
                          capture_output=True, text=True, check=True).stdout


class Suite(unittest.TestCase):
    def test_on_the_card(self):
        done = subprocess.run([BUILD / "bin/beeline", "run", "--", SUITE, "--gtest_brief=1"], capture_output=True, text=True,
                              timeout=900, env={**os.environ, "BEELINE_PROVIDER": "soft"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("SKIPPED", done.stdout)

    def test_it_knows_nothing_of_beeline(self):
        needed = subprocess.run(["ldd", SUITE], capture_output=True, text=True, check=True).stdout
        self.assertIn("libibverbs.so.1", needed)
        self.assertNotIn("beeline", needed.replace(str(BUILD), ""))


class Completeness(unittest.TestCase):
    """Nothing that a program may call is forgotten: the suite calls it, or lists it among what is refused."""

    def setUp(self):
        self.called = set(re.findall(r"\b_?ibv_\w+", "".join(path.read_text() for path in VERBS.iterdir())))

    def test_verbs_that_reach_a_device_through_its_context(self):
        inline = {name for name, body in re.findall(r"static inline [^;{}]*?\b(ibv_\w+)\s*\([^{]*\)\s*\{(.*?)\n\}", header(), re.S)
                  if "verbs_get_ctx" in body or "context->ops" in body}
        self.assertGreater(len(inline), 30)
        # Of what opening refuses; and what libibverbs' own calls stand for.
        never_reached = {"ibv_close_xrcd", "ibv_query_device_ex"}
        self.assertEqual(sorted(inline - self.called - never_reached), [])

    def test_every_limit_that_a_device_advertises(self):
        members = re.search(r"struct ibv_device_attr\s*\{([^}]*)\}", header()).group(1)
        limits = set(re.findall(r"\bmax_\w+", members))
        self.assertGreater(len(limits), 25)
        self.assertEqual(sorted(limits - set(re.findall(r"\bmax_\w+", (VERBS / "limits.cc").read_text()))), [])

    def test_what_the_preload_library_leaves_to_real_devices(self):
        sources = "".join(path.read_text() for path in (ROOT / "src/preload/verbs").glob("*.cc"))
        refused = set(re.findall(r"only_real<&Real::(ibv_\w+)", sources))
        self.assertGreater(len(refused), 10)
        # The card has these, but under another signature than the real library's.
        offered = {"ibv_query_port", "ibv_query_gid_type", "ibv_init_ah_from_wc"}
        self.assertEqual(sorted(refused - self.called - offered), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
