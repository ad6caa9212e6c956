"""Files under attack, and what becomes of those that still load: pictures, pages, exports.

A second mutator beside `tests.helpers.fuzzing`, written without regard to it. It knows the numbers
of a file: each becomes one of its neighbours or a bound of a type. Lists lose, repeat and swap
entries. Many files therefore still load, and do not fit their problem.

``python -m tests.helpers.attacks MINUTES [SEED]`` runs for long.
"""

import json
import random
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import optmatch as om
from optmatch.io import dumps, loads
from optmatch.io.exports import EXPORTERS, exported
from optmatch.kinds import view_of_solution
from tests.helpers.formats import Files, Seed, places_in, read_and_verify, seeds

MOST_LETTERS = 4000
"""The longest message that an error may have."""

BOUNDS = (
    -(2**63),
    -(2**31),
    -2,
    -1,
    0,
    1,
    127,
    128,
    2**31 - 1,
    2**31,
    10**18,
    2**63,
    10**26,
    10**330,
)
REALS = (1e-320, 5e-324, 1e-15, 0.1, 1e15, 2e16, 1e300, 1.7e308)


class Fault(NamedTuple):
    """An input that raised what no user should see."""

    action: str
    """What was done with the input: ``load``, or the use of what was loaded."""
    text: str


def attack_tree(tree: Any, rng: random.Random) -> None:
    """Change one place of a tree, preferably one below the answer."""
    places = list(places_in(tree))
    answers = [tree[key] for key in ("answer", "schedule", "certificate") if tree.get(key)]
    if answers and rng.random() < 0.75:
        places = list(places_in(rng.choice(answers))) or places
    holder, key = rng.choice(places)
    value = holder[key]
    if isinstance(value, float) and not -1e300 < value < 1e300:
        holder[key] = 0
    elif isinstance(value, bool) or value is None:
        holder[key] = rng.choice((True, None, 0, [], {}))
    elif isinstance(value, int):
        holder[key] = _attack_integer(value, rng)
    elif isinstance(value, float):
        holder[key] = rng.choice((*REALS, -value, value * 2, value + 1, int(value)))
    elif isinstance(value, str):
        holder[key] = rng.choice((value[:-1], value + "x", "", "\u0000", 7))
    elif isinstance(value, list):
        _attack_list(value, rng)
    elif value:
        name = rng.choice(list(value))
        if rng.random() < 0.5:
            del value[name]
        else:
            value[name] = rng.choice(([], {}, 0, [[]], [[0]]))


def _attack_integer(value: int, rng: random.Random) -> Any:
    near = (value - 1, value + 1, value + 2, -value, 2 * value, value + 100, value % 100 + 0.5)
    return rng.choice(near) if rng.random() < 0.6 else rng.choice(BOUNDS)


def _attack_list(value: list[Any], rng: random.Random) -> None:
    """Remove, repeat, swap or empty entries, or cut a column off all rows."""
    action = rng.randrange(6)
    k = rng.randrange(len(value)) if value else 0
    if not value or action == 0:
        value.append(value[k] if value else 0)
    elif action == 1:
        del value[k]
    elif action == 2:
        value.clear()
    elif action == 3:
        value.extend(value[:k] or value)
    elif action == 4:
        value[k], value[0] = value[0], value[k]
    else:
        value[:] = [row[:-1] if isinstance(row, list) else row for row in value]


def attack_bytes(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Change bytes without regard to their meaning, or splice two files."""
    at = rng.randrange(len(content) + 1)
    action = rng.randrange(5)
    if action == 0:
        return content[:at]
    if action == 1:
        other = rng.choice(others)
        return content[:at] + other[rng.randrange(len(other) + 1) :]
    if action == 2:
        return content[:at] + rng.randbytes(rng.randrange(1, 9)) + content[at:]
    if action == 3:
        flipped = bytearray(content or b" ")
        flipped[at % len(flipped)] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    digits = rng.choice([str(n).encode() for n in (*BOUNDS, *REALS)] + [b"nan", b"-inf", b"0b1"])
    numbers = [k for k, letter in enumerate(content) if 48 <= letter <= 57]
    at = rng.choice(numbers) if numbers else at
    return content[:at] + digits + content[at + 1 :]


def attack_files(files: Files, others: list[bytes], rng: random.Random) -> Files:
    """Change one of the files of an input once, or a few times."""
    name = rng.choice(list(files))
    content = files[name]
    for _ in range(rng.choice((1, 1, 2, 5))):
        try:
            tree = json.loads(content)
        except (ValueError, RecursionError):
            tree = None
        if isinstance(tree, dict) and tree and rng.random() < 0.85:
            attack_tree(tree, rng)
            content = json.dumps(tree).encode()
        else:
            content = attack_bytes(content, others, rng)
    return {**files, name: content}


def uses_of(loaded: om.Solution, rng: random.Random) -> dict[str, Callable[[], object]]:
    """List what a user may do with a solution that was loaded: all but a few of the exports."""
    view = view_of_solution(loaded)
    uses: dict[str, Callable[[], object]] = {
        "verify": lambda: om.verify(loaded.problem, loaded),
        "summary": loaded.summary,
        "tabulate": loaded.to_dataframe,
        "dumps": lambda: loads(dumps(loaded)),
    }
    if view.page is not None:
        page = view.page
        uses["page"] = lambda: json.dumps(page(loaded), allow_nan=False)
    if rng.random() < 0.1:
        uses["plot"] = lambda: view.draw(loaded, None, None)
        uses["plot slot"] = lambda: view.draw(loaded, 0, None)
    for name in EXPORTERS:
        rate = rng.choice((None, 1e9))
        uses[f"export {name}"] = lambda name=name, rate=rate: exported(loaded, name, rate)  # type: ignore[misc]
    return uses


def find_faults(loaded: object, rng: random.Random) -> Iterator[Fault]:
    """Use what was loaded in all ways; yield what raises anything but a named error."""
    if not isinstance(loaded, om.Solution):
        return
    for action, use in uses_of(loaded, rng).items():
        fault = try_action(action, use)
        if fault is not None:
            yield fault


def try_action(action: str, act: Callable[[], object]) -> Fault | None:
    """Return the fault of one action, None if it returns or raises an error of ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            act()
    except om.OptMatchError as exc:
        message = str(exc)
        try:
            message.encode()
        except UnicodeEncodeError:
            return Fault(action, f"a message that cannot be encoded: {message!r:.200}")
        if len(message) > MOST_LETTERS or not message:
            return Fault(action, f"a message of {len(message)} letters: {message[:200]}")
    except BaseException:
        return Fault(action, traceback.format_exc())
    return None


def attack(seed: Seed, files: Files, folder: Path, rng: random.Random) -> Iterator[Fault]:
    """Load changed files, and use what loads."""
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    path = folder / next(iter(files))
    loaded: list[object] = []
    fault = try_action("load", lambda: loaded.append(seed.read(path)))
    if fault is not None:
        yield fault
    if seed.read is read_and_verify and loaded:
        yield from find_faults(om.load(path), rng)


def main(minutes: float, start: int) -> int:
    """Attack files for so long, and print each kind of fault once."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    kinds = seeds()
    contents = [c for row in kinds.values() for seed in row for c in seed.files.values()]
    folder = Path(f"/tmp/attacks-{start}")
    folder.mkdir(exist_ok=True)
    weights = {kind: 6 if kind in ("schedule", "arrays", "problem") else 1 for kind in kinds}
    tried = Counter[str]()
    faults = Counter[str]()
    slowest_s = 0.0
    end_s = time.process_time() + 60 * minutes
    while time.process_time() < end_s:
        number = tried.total()
        rng = random.Random(f"{start} {number}")
        kind = rng.choices(list(weights), list(weights.values()))[0]
        seed = rng.choice(kinds[kind])
        files = attack_files(seed.files, contents, rng)
        tried[kind] += 1
        begun_s = time.process_time()
        for action, text in attack(seed, files, folder, rng):
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            frames = [line for line in lines if line.startswith("File") and "optmatch" in line]
            place = frames[-1] if frames else ""
            reason = f"{kind}, {action}: {place} {lines[-1]}"[:300]
            faults[reason] += 1
            if faults[reason] == 1:
                kept = folder / "kept" / str(len(faults))
                kept.mkdir(parents=True, exist_ok=True)
                for name, content in files.items():
                    (kept / name).write_bytes(content)
                (kept / "fault.txt").write_text(text)
        took_s = time.process_time() - begun_s
        if took_s > slowest_s:
            slowest_s = took_s
            print(f"{number}: {kind} took {took_s:.1f} s", flush=True)
    for reason, count in faults.most_common():
        print(count, reason)
    print(f"{tried.total()} inputs, {faults.total()} faults: {dict(tried)}; seed {start}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
