"""Programs of librdmacm, and perftest's -R, unmodified: the real librdmacm over the emulated device, on one
host and between two network namespaces."""

import unittest

from place import TCP, UDP, Program, await_service, free_port, on_card, places


class ConnectionManager(unittest.TestCase):
    def play(self, server_words, client_words, space=TCP, port=None, server_ends=True):
        """{address} and {port} stand for the server's. Returns the client's output, of the last place."""
        for place in places():
            client, number = None, port or free_port()
            fill = lambda words: [w.format(address=place.address, port=number) for w in words.split()]
            server = Program(place.words(0, on_card(*fill(server_words))))
            try:
                await_service(server, space, number)
                client = Program(place.words(1, on_card(*fill(client_words))))
                status = client.wait()
                told = f"{client_words} ({place.name})\nclient:\n{client.output()}\nserver:\n{server.output()}"
                self.assertEqual(status, 0, told)
                if server_ends:
                    self.assertEqual(server.wait(), 0, told)
                output = client.output()
            finally:
                server.kill()
                if client is not None:
                    client.kill()
        return output

    def test_rping(self):
        output = self.play("rping -s -a {address} -p {port} -v -V -C 10", "rping -c -a {address} -p {port} -v -V -C 10")
        self.assertIn("rdma-ping-9", output)

    def test_ucmatose(self):
        self.assertIn("return status 0", self.play("ucmatose -p {port} -c 5 -C 10",
                                                   "ucmatose -s {address} -p {port} -c 5 -C 10"))

    def test_udaddy(self):
        # Its port is fixed; -p is the port space.
        self.assertIn("return status 0", self.play("udaddy -c 3 -C 10", "udaddy -s {address} -c 3 -C 10", UDP, 7174))

    def test_cmtime(self):
        # Its server goes on for further clients.
        self.assertIn("disconnect", self.play("cmtime -p {port} -c 50", "cmtime -s {address} -p {port} -c 50",
                                              server_ends=False))

    def test_rdma_server_and_client(self):
        self.assertIn("end 0", self.play("rdma_server -p {port}", "rdma_client -s {address} -p {port}"))

    def test_rsockets(self):
        for tool in ("rstream", "riostream"):
            with self.subTest(tool=tool):
                self.play(f"{tool} -p {{port}} -S 4096 -C 20", f"{tool} -s {{address}} -p {{port}} -S 4096 -C 20")

    def test_perftest(self):
        for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_bw",
                     "ib_atomic_lat", "ib_send_lat -c UD -s 512"):
            with self.subTest(tool=tool):
                self.play(f"{tool} -R -F -n 50 -p {{port}}", f"{tool} -R -F -n 50 -p {{port}} {{address}}")

    def test_nobody_listens(self):
        place = places()[0]
        client = Program(on_card("rping", "-c", "-a", place.address, "-p", free_port(), "-C", 1))
        self.assertNotEqual(client.wait(), 0, client.output())
        self.assertIn("rejected", client.output().lower())


if __name__ == "__main__":
    unittest.main()
