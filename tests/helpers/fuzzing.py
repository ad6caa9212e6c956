"""Inputs of every format, changed at random: each is read, or refused by name.

An answer that still loads is used in all ways that a user has: tables, pages, pictures, exports.

``python -m tests.helpers.fuzzing MINUTES`` runs for long, with new random numbers each time.
"""

import copy
import faulthandler
import gzip
import io
import json
import math
import os
import random
import re
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import optmatch as om
from optmatch.io.exports import EXPORTERS, exported
from optmatch.kinds import view_of_solution
from tests.helpers.drawn_rails import draw_rail_job, try_rail_job
from tests.helpers.formats import Files, Seed, places_in, read_and_verify, seeds

MOST_SECONDS, MOST_MEBIBYTES = 5, 512
METHODS = ("prefetch", "provisioned", "on-demand", "static")
"""Of rail jobs."""
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, -2, 2, 3, 7, 100, 127, 128, 0.5, -0.0, 5e-324, 1e-300, 2e16,
    1e308, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63, -(2**63), 2**64, 300_000_000, 10**9,
    10**18, 10**26, 10**400, math.nan, -math.inf, "", "x", "0", "1e9", "=1+1", "$\\foo$", "a\0b",
    "\ud800", "\u202e\r\n", "a>b", "a,b", "../x", "x" * 5000, [], {}, [[0]], [[1], [1, 2]],
    [[[[]]]], {"npz": "a"}, {"type": "ideal-switch", "n": 3},
]  # fmt: skip
ANSWERS = ("answer", "schedule", "certificate")
"""Keys of a file below which an answer stands."""
TOKENS = [
    "", "0", "-1", "1e308", "1e-320", "nan", "inf", "9" * 30, "1" * 5000, "0x10", "1_0", "\u00b2",
    "[" * 3000, "{", "]", '"', "'", ",", ":", ";", "\t", "\r", "\0", "\u2028", "#", "%", "null",
    "true", "!!python/object:os.system", "!!binary aGk=", "2001-01-01", "&a", "*a", "*s", "<<",
    "=1+1", "$\\foo$", "\n", " ", "1000000000", "99999999999999999999", "1j", "é", "x" * 3000,
]  # fmt: skip


class Outcome(NamedTuple):
    """The outcome of one input."""

    refused: bool
    seconds: float
    """Of the processor."""
    mebibytes: float
    """What it took at most, above what was there before."""
    flaw: str
    """What is wrong with it; empty if nothing."""


def mutate_files(files: Files, rng: random.Random) -> Files:
    """Change one of the files in one place, or in a few."""
    name = rng.choices(list(files), [3] + [1] * (len(files) - 1))[0]
    content = files[name]
    for _ in range(rng.choice((1, 1, 1, 1, 2, 4))):
        content = _change(Path(name).suffix, content, rng)
    return {**files, name: content}


def _change(suffix: str, content: bytes, rng: random.Random) -> bytes:
    by_structure = {".json": _change_json, ".npz": _change_npz, ".npy": _change_npy}
    try:
        if content[:2] == b"\x1f\x8b" and rng.random() < 0.7:
            return gzip.compress(_change(suffix, gzip.decompress(content), rng), mtime=0)
        if suffix in by_structure and rng.random() < 0.8:
            return by_structure[suffix](content, rng)
    except Exception:  # what was damaged before has no structure to change
        return _change_bytes(content, rng)
    return _change_bytes(content, rng) if rng.random() < 0.3 else _change_tokens(content, rng)


def _change_json(content: bytes, rng: random.Random) -> bytes:
    return json.dumps(change_json(json.loads(content), rng)).encode()


def change_json(tree: Any, rng: random.Random) -> Any:
    """Change one place of a tree, in place; in half of the cases one below the answer."""
    places = list(places_in(tree))
    answers = [tree[key] for key in ANSWERS if tree.get(key)] if isinstance(tree, dict) else []
    if answers and rng.random() < 0.5:
        places = list(places_in(rng.choice(answers))) or places
    holder: Any
    key: Any
    holder, key = rng.choice(places) if places else ({"": tree}, "")
    action, value = rng.randrange(8), holder[key]
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(value))
    elif action == 2 and isinstance(holder, dict):
        holder[rng.choice(["", "x", "n", "fabric", "type", str(key) + "s"])] = holder.pop(key)
    elif action == 3 and places:
        other, place = rng.choice(places)
        holder[key] = copy.deepcopy(other[place])
    elif action in (4, 5) and isinstance(value, int | float):
        holder[key] = _near(value, rng)
    elif action == 6 and isinstance(value, list):
        holder[key] = [row[:-1] if isinstance(row, list) else row for row in value]
    else:
        holder[key] = copy.deepcopy(rng.choice(VALUES))
    return tree


def _near(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    return rng.choice(
        [value + 1, value - 1, -value, value * 2, value / 2, value * 1000, value // 3]
    )


def _change_npz(content: bytes, rng: random.Random) -> bytes:
    with np.load(io.BytesIO(content)) as found:
        arrays: dict[str, Any] = dict(found)
    name = rng.choice(list(arrays))
    if rng.random() < 0.1:
        arrays[rng.choice(["x", "../a"])] = arrays.pop(name)
    else:
        arrays[name] = _change_array(arrays[name], rng)
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def _change_npy(content: bytes, rng: random.Random) -> bytes:
    out = io.BytesIO()
    np.save(out, _change_array(np.load(io.BytesIO(content)), rng))
    return out.getvalue()


def _change_array(array: Any, rng: random.Random) -> Any:
    action = rng.randrange(4)
    if action == 0 and array.ndim:
        cut = (array[1:], array[:0], array[None], array.T, np.repeat(array, 3, axis=0))
        return rng.choice(cut)
    if action == 1:
        kinds = ("f2", "f8", "i1", "u8", "i8", "c16", "?", "U3", "S3", ">f8", "M8[s]")
        return array.astype(rng.choice(kinds))
    changed = np.array(array)
    if changed.size and changed.dtype.kind in "iuf":
        most = 2 ** (8 * changed.itemsize - 2)
        values = (0, 1, -1, 2, most, -most, 5, 100, *rng.choices(changed.ravel().tolist(), k=2))
        with np.errstate(all="ignore"):
            value = math.nan if changed.dtype.kind == "f" and action == 2 else rng.choice(values)
            changed.flat[rng.randrange(changed.size)] = value
    return changed


def _change_tokens(content: bytes, rng: random.Random) -> bytes:
    text = content.decode("utf-8", "replace") if content.isascii() else content.decode("latin-1")
    tokens = re.findall(r"[^\W_]+|\s+|.", text, re.DOTALL) or [""]
    k, action = rng.randrange(len(tokens)), rng.randrange(6)
    if action == 0:
        tokens[k : k + rng.choice((1, 1, 2, 10))] = []
    elif action == 1:
        tokens.insert(k, rng.choice(TOKENS))
    elif action == 2:
        tokens[k] = rng.choice(tokens)
    elif action == 3:
        tokens[k] *= rng.choice((2, 2, 3, 1000))
    elif action == 4:
        lines = text.splitlines(keepends=True) or [""]
        lines[rng.randrange(len(lines))] = rng.choice([*lines, "\n"]) * rng.choice((0, 1, 2, 50))
        tokens = lines
    else:
        tokens[k] = rng.choice(TOKENS)
    return "".join(tokens).encode("latin-1" if not content.isascii() else "utf-8", "replace")


def _change_bytes(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    to = at + rng.choice((0, 1, 1, 2, 8, 100))
    middle = rng.choice([b"", rng.randbytes(to - at), content[at:to] * 2, b"\xff\xff\xff\xff\x0f"])
    return content[:at] + middle + content[to:] if rng.random() < 0.9 else content[:at]


def use_answer(answer: om.Solution, rng: random.Random) -> str:
    """Do with an answer what a user may do, few pictures; return the first flaw."""
    view = view_of_solution(answer)
    rate = rng.choice((None, 1e9))
    uses: list[Callable[[], object]] = [
        answer.summary,
        answer.to_dataframe,
        *(partial(exported, answer, name, rate) for name in EXPORTERS),
    ]
    if view.page is not None:
        uses.append(partial(view.page, answer))
    if rng.random() < 0.1:
        uses += [partial(view.draw, answer, slot, None) for slot in (None, 0)]
    for use in uses:
        try:
            use()
        except om.OptMatchError as exc:
            if not str(exc):
                return f"{use}: no message"
        except Exception:
            return f"{use}: {traceback.format_exc()}"
    return ""


def try_input(seed: Seed, files: Files, folder: Path, rng: random.Random) -> Outcome:
    """Read changed files, use the answer in them, and return the faults."""
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    flaw, refused, started, before = "", False, time.process_time(), memory(reset=True)
    try:
        path = folder / next(iter(files))
        seed.read(path)
        answer = om.load(path) if seed.read is read_and_verify else None
        if isinstance(answer, om.Solution):
            flaw = use_answer(answer, rng)
    except om.InputError as exc:
        refused = True
        if not exc.message or len(str(exc).encode()) > 20_000:
            flaw = f"a message of {len(str(exc))} letters"
    except Exception:
        flaw = traceback.format_exc()
    seconds, mebibytes = time.process_time() - started, memory() - before
    if seconds > MOST_SECONDS or mebibytes > MOST_MEBIBYTES:
        flaw = flaw or f"{seconds:.1f} s, {mebibytes:.0f} MiB"
    return Outcome(refused, seconds, mebibytes, flaw)


def plan_job(path: Path) -> object:
    """Draw a rail job, of which the content of the file is the seed, and plan it."""
    rng = random.Random(path.read_bytes())
    job = draw_rail_job(rng)
    if job is None:
        raise om.InputError("options that do not fit each other")
    flaw = try_rail_job(job, rng.choice(METHODS), path.parent)
    assert not flaw, flaw
    return job


def memory(*, reset: bool = False) -> float:
    """Return the most memory that was in use since the last reset, in MiB; 0 if not on Linux."""
    if not Path("/proc/self/clear_refs").exists():
        return 0.0
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s*(\d+)", status)[0]) / 1024


def _hung(*_: object) -> None:
    raise TimeoutError("a minute for one input")


def main(minutes: float, kept: Path) -> int:
    """Try inputs for so long, keep those that fail, and print a table."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    signal.signal(signal.SIGVTALRM, _hung)
    start = int.from_bytes(os.urandom(4), "little")
    jobs = Seed({"job.txt": " ".join(map(str, range(start % 1000, 1200))).encode()}, plan_job)
    found, tried, refused = {**seeds(), "job": [jobs]}, Counter[str](), Counter[str]()
    slowest, largest = Counter[str](), Counter[str]()
    failures = Counter[str]()
    end = time.monotonic() + 60 * minutes
    now = kept / "now"  # what is there after a crash is its cause
    now.mkdir(parents=True, exist_ok=True)
    while time.monotonic() < end:
        for kind, of_kind in found.items():
            rng = random.Random(f"{start} {kind} {tried[kind]}")
            seed = rng.choice(of_kind)
            files = mutate_files(seed.files, rng)
            signal.setitimer(signal.ITIMER_VIRTUAL, 60)
            outcome = try_input(seed, files, now, rng)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            tried[kind] += 1
            refused[kind] += outcome.refused
            slowest[kind] = max(slowest[kind], outcome.seconds)  # type: ignore[assignment]
            largest[kind] = max(largest[kind], outcome.mebibytes)  # type: ignore[assignment]
            if outcome.flaw:
                reason = " ".join(outcome.flaw.split()[-12:])[:150]
                failures[f"{kind}: {reason}"] += 1
                if failures[f"{kind}: {reason}"] == 1:
                    target = kept / f"{kind}-{len(failures)}"
                    target.mkdir(parents=True, exist_ok=True)
                    for file, content in files.items():
                        (target / file).write_bytes(content)
                    (target / "flaw.txt").write_text(outcome.flaw)
    print(f"random numbers from {start}")
    for kind in found:
        print(
            f"{kind:10} {tried[kind]:8} inputs, {refused[kind]:8} refused,"
            f" slowest {slowest[kind]:6.2f} s, most {largest[kind]:6.0f} MiB"
        )
    for reason, count in failures.most_common():
        print(f"{count:6} {reason}")
    print(f"{tried.total()} inputs, {failures.total()} failed; those are in {kept}/")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), Path("fuzz-failures")))
