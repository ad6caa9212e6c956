"""A rank that does programs of MSCCL: a process of its own, with plain sockets to the others.

It reads a program and its buffers from a line of JSON, does the steps of each thread block in a
thread, and prints its buffers. Chunks are one number of eight bytes. It imports nothing of ours.
"""

import json
import socket
import sys
import threading
import time
from array import array
from typing import Any
from xml.etree import ElementTree


def do(gpu: Any, buffers: Any, sockets: Any) -> list[str]:
    """Do the program of one rank."""
    done: dict[int, int] = {}
    news = threading.Condition()
    wrong: list[str] = []

    def run(block: Any) -> None:
        number, to, heard = (int(block.attrib[name]) for name in ("id", "send", "recv"))
        for step in block:
            told = step.attrib
            with news:
                other, last = int(told["depid"]), int(told["deps"])
                until = time.monotonic() + 20
                while other >= 0 and done.get(other, -1) < last:
                    if not news.wait(until - time.monotonic()):
                        raise TimeoutError(told)
            count = int(told["cnt"])
            source, at = buffers[told["srcbuf"]], int(told["srcoff"])
            target, into = buffers[told["dstbuf"]], int(told["dstoff"])
            if told["type"] == "s":
                sockets[f"to {to}"].sendall(source[at : at + count].tobytes())
            elif told["type"] in ("r", "rrc"):
                came, left = array("q"), b""
                while len(left) < 8 * count:
                    more = sockets[f"from {heard}"].recv(8 * count - len(left))
                    if not more:
                        raise EOFError(told)
                    left += more
                came.frombytes(left)
                for k, value in enumerate(came):
                    target[into + k] = value + (source[at + k] if told["type"] == "rrc" else 0)
            elif told["type"] == "cpy":
                target[into : into + count] = source[at : at + count]
            with news:
                done[number] = int(told["s"])
                news.notify_all()

    def guarded(block: Any) -> None:
        try:
            run(block)
        except BaseException as exc:  # told to the parent
            wrong.append(repr(exc))

    threads = [threading.Thread(target=guarded, args=(block,)) for block in gpu]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def main() -> None:
    """Do one program for each line."""
    rank, ends = int(sys.argv[1]), json.loads(sys.argv[2])
    sockets = {name: socket.socket(fileno=number) for name, number in ends.items()}
    for each in sockets.values():
        each.settimeout(20)
    for line in sys.stdin:
        told = json.loads(line)
        gpu = ElementTree.fromstring(told["program"]).findall("gpu")[rank]
        buffers = {name: array("q", values) for name, values in told["buffers"].items()}
        wrong = do(gpu, buffers, sockets)
        found = {name: values.tolist() for name, values in buffers.items()}
        print(json.dumps({"wrong": wrong, "buffers": found}), flush=True)


main()
