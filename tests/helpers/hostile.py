"""Small files that state huge sizes, read in little address space.

``python -m tests.helpers.hostile`` reads each in this process, whose address space it limits, and
prints those that are neither read nor refused by an `InputError` within two seconds of CPU. Beside
files by hand, each number of a small valid file of every format is set to huge values in turn.
"""

import io
import json
import resource
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import optmatch as om
from optmatch.io import read_matrix
from tests.helpers.formats import Files, places_in, seeds

MOST_BYTES = 512 << 20
"""Of address space beside the modules, which take up to 400 MiB; pyarrow alone reserves more."""
MOST_CPU_S = 2.0
HUGE = (2147483647, 10**9, 300_000_000)

SOLVING = ("cells", "start")
"""Formats whose seeds are solved once they are read, which takes more memory than reading."""

Reader = Callable[[Path], object]


def packed_zeros(name: str, shape: tuple[int, ...], type_: str) -> bytes:
    """Return an archive of one array of zeros, which takes a thousandth of its size."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": type_, "fortran_order": False, "shape": shape}
    )
    content = io.BytesIO()
    size = int(np.prod(shape)) * np.dtype(type_).itemsize
    with (
        zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(f"{name}.npy", "w", force_zip64=True) as stream,
    ):
        stream.write(header.getvalue())
        for start in range(0, size, 1 << 20):
            stream.write(bytes(min(1 << 20, size - start)))
    return content.getvalue()


def files_by_hand() -> Iterator[tuple[str, Files, Reader]]:
    """List a name, files and the reader of the first of them."""
    yield "matrix", {"a.npz": packed_zeros("a", (9_000, 9_000), "<f8")}, read_matrix
    yield "complex", {"a.npz": packed_zeros("a", (5_000, 5_000), "<c16")}, read_matrix


def files_with_huge_numbers(each: int) -> Iterator[tuple[str, Files, Reader]]:
    """Set numbers of small valid files of JSON to huge values, at most so many of a file."""
    for kind, row in seeds().items():
        if kind in SOLVING:
            continue
        for number, seed in enumerate(row):
            first = next(iter(seed.files))
            if not first.endswith(".json"):
                continue
            places = list(places_in(json.loads(seed.files[first])))
            numbers = [k for k, (holder, key) in enumerate(places) if type(holder[key]) is int]
            stride = max(1, len(numbers) // each)
            for turn, place in enumerate(numbers[::stride][:each]):
                tree = json.loads(seed.files[first])
                holder, key = list(places_in(tree))[place]
                holder[key] = HUGE[turn % len(HUGE)]
                content = json.dumps(tree).encode()
                yield f"{kind} {number}: {key}", {**seed.files, first: content}, seed.read


def read_small(files: Files, read: Reader, folder: Path) -> str:
    """Read files, draw and list what is read; return the fault, nothing if there is none."""
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    started_s = time.process_time()
    fault = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = folder / next(iter(files))
            found: Any = read(path)
            if isinstance(found, str):  # the report of an answer that was verified
                found = om.load(path)
                found.to_dataframe()
                found._repr_html_()
    except om.OptMatchError:
        pass
    except BaseException:
        fault = traceback.format_exc()
    took_s = time.process_time() - started_s
    if took_s > MOST_CPU_S:
        fault += f"{took_s:.1f} s of CPU"
    return fault


def main(each: int) -> int:
    """Read all, and print the faults."""
    read_small(next(iter(files_by_hand()))[1], read_matrix, Path(tempfile.mkdtemp()))
    cases = [*files_by_hand(), *files_with_huge_numbers(each)]
    for kind, row in seeds().items():  # modules are loaded before the clock counts
        if kind not in SOLVING:
            read_small(row[0].files, row[0].read, Path(tempfile.mkdtemp()))
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    most_bytes = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    folder = Path(tempfile.mkdtemp())
    n_faults = 0
    for name, files, read in cases:
        fault = read_small(files, read, folder)
        if fault:
            n_faults += 1
            print(f"{name}\n{fault}", flush=True)
    print(f"{len(cases)} files, {n_faults} faults")
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 4))
