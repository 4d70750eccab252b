"""What programs print (recorded), as numbers."""

import json
import unittest

from place import sample

from harness import parse
from harness.stage import Failure, is_open


class Recorded(unittest.TestCase):
    def test_iperf3(self):
        rate, total = parse.iperf3(sample("iperf3.json"))
        self.assertAlmostEqual(rate, 0.8165, places=4)  # what has arrived, in GB/s; 0.8231 were sent
        self.assertEqual(total, 816971776)

    def test_iperf3_without_a_server(self):
        with self.assertRaisesRegex(Failure, "unable to connect to server: Connection refused"):
            parse.iperf3(sample("iperf3_refused.json"))

    def test_bandwidth_of_beeline_perf(self):
        rate, total = parse.perf_bandwidth(sample("perf_write_bw.json"))
        self.assertAlmostEqual(rate, 0.15259, places=5)
        self.assertEqual(total, 65536 * 2432)

    def test_latency_of_beeline_perf(self):
        self.assertEqual(parse.perf_latency(sample("perf_send_lat.json")), 153.856)

    def test_mpirun_with_its_warnings(self):
        text = "mpirun says something\n" + sample("mpi_all_reduce.txt") + "[vm:1] and more\n"
        numbers = parse.all_reduce(text, "mpi_all_reduce")
        self.assertEqual(numbers, {8: 30.8019, 1048576: 168.7710})  # medians of the batches

    def test_raw_udp(self):
        rate, arrived = parse.raw_stream(sample("raw_send.json"), sample("raw_receive.json"))
        self.assertEqual((rate, arrived), (0.601345, 1.0))
        self.assertEqual(parse.raw_latency(sample("raw_ping.json")), 3.155)

    def test_raw_udp_with_loss(self):
        sent, got = json.dumps({"sent_bytes": 200}), json.dumps({"received_bytes": 150, "GBps": 1.0})
        self.assertEqual(parse.raw_stream(sent, got)[1], 0.75)

    def test_idleness(self):
        self.assertAlmostEqual(parse.idleness('{"seconds": 2.0, "cpu_seconds": 0.001}\n'), 0.5)


class Misfits(unittest.TestCase):
    """Whatever a program prints, the harness says which program it was."""

    READERS = {"iperf3": parse.iperf3, "beeline perf": parse.perf_bandwidth, "raw_udp": parse.raw_latency,
               "mpi": lambda text: parse.all_reduce(text, "mpi")}

    def test_no_text_is_taken_for_a_result(self):
        for whose, read in self.READERS.items():
            for text in ("", "Segmentation fault", "{", "[]", "{}", '{"end": 3}', '{"results": []}', "{\"bytes\": 8}"):
                with self.subTest(whose=whose, text=text), self.assertRaisesRegex(Failure, whose):
                    read(text)


class Sockets(unittest.TestCase):
    TABLE = ("  sl  local_address rem_address   st tx_queue rx_queue\n"
             "   0: 0100007F:4855 00000000:0000 0A 00000000:00000000\n"
             "   1: 0100007F:1451 0100007F:9999 01 00000000:00000000\n")

    def test_only_a_listening_socket_is_open(self):
        self.assertTrue(is_open(self.TABLE, "tcp", 18517))
        self.assertFalse(is_open(self.TABLE, "tcp", 5201))  # connected
        self.assertFalse(is_open(self.TABLE, "udp", 18517))
        self.assertFalse(is_open("", "tcp", 18517))


class Sizes(unittest.TestCase):
    def test_byte_counts(self):
        self.assertEqual([parse.byte_count(size) for size in (4, 1000, 1024, 1536, 65536, 128 << 20)],
                         ["4 B", "1000 B", "1 KiB", "1536 B", "64 KiB", "128 MiB"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
