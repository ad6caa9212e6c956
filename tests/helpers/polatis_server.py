"""A stand-in of a Polatis switch: SCPI over TCP on a free port of 127.0.0.1."""

import re
import socketserver
import threading
import time
from typing import Any


class PolatisServer:
    """Answers as the public drivers expect: lines, ``*opc?``, lists of ports.

    Parameters
    ----------
    n_ports
        Inputs and outputs of the switch.
    delay_s
        What a command takes.
    """

    def __init__(self, n_ports: int, delay_s: float = 0.0) -> None:
        self.n_ports, self.delay_s = n_ports, delay_s
        self.output_of: dict[int, int] = {}
        self.errors: list[str] = []
        self.violations: list[str] = []
        switch = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    answers = [switch.answer(part) for part in line.decode().strip().split(";")]
                    told = [answer for answer in answers if answer is not None]
                    if told:
                        self.wfile.write(";".join(told).encode() + b"\n")

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self.server: Any = Server(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, command: str) -> str | None:
        """Carry a command out; None for one that is not answered."""
        command = command.strip().lower()
        if command == ":oxc:swit:size?":
            return f"{self.n_ports},{self.n_ports}"
        if command == ":oxc:swit:conn:stat?":
            pairs = sorted(self.output_of.items())
            inputs = ",".join(str(entry) for entry, _ in pairs)
            outputs = ",".join(str(exit_) for _, exit_ in pairs)
            return f"(@{inputs}),(@{outputs})"
        if command == "*opc?":
            return "1"
        if command == ":syst:err?":
            return self.errors.pop() if self.errors else '0,"No error"'
        match = re.fullmatch(r":oxc:swit:conn:(add|sub) \(@([\d,]+)\),\(@([\d,]+)\)", command)
        if match is None:
            self.errors.append('-113,"Undefined header"')
            return None
        time.sleep(self.delay_s)
        for entry, exit_ in zip(match[2].split(","), match[3].split(","), strict=True):
            self._change(match[1], int(entry), int(exit_))
        return None

    def _change(self, verb: str, entry: int, exit_: int) -> None:
        if verb == "sub":
            if self.output_of.pop(entry, None) != exit_:
                self.violations.append(f"{entry} to {exit_} is not there")
        elif entry in self.output_of or exit_ in self.output_of.values():
            self.errors.append('-200,"Execution error; port in use"')
            self.violations.append(f"{entry} to {exit_}: in use")
        else:
            self.output_of[entry] = exit_

    def stop(self) -> None:
        """Close it."""
        self.server.shutdown()
        self.server.server_close()
