"""Hand in answers to problems of the library: verify them, and index what is better.

    python benchmarks/submit.py ANSWER... [--write]

ANSWER is a schedule file, or a store of sweeps, of which all answers count. Without `--write` the
index stays as it is. An answer that `verify` refuses ends the script with code 5, one that cannot
be read with code 2; nothing is written then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import optmatch as om
from optmatch.model import InputError, Solution, VerificationError
from optmatch.sweeps.library import Library, describe_best
from optmatch.sweeps.store import Store, StoreError


def list_answers(path: str) -> Iterator[Solution]:
    """Read the answer of a schedule file, or all answers of a store."""
    try:
        answers = Store(path, read_only=True)
    except StoreError:
        answer = om.load(path)
        if not isinstance(answer, Solution):
            raise InputError(
                "a schedule file or a store of sweeps is expected", path=path
            ) from None
        yield answer
        return
    with answers as store:
        for row in store.rows(answers=True):
            if row.answer is not None:
                yield row.solution(store.problem(row.problem_sha256))


def main(arguments: Sequence[str] | None = None) -> int:
    """Say of each answer whether it is better than what is known; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("answers", metavar="ANSWER", nargs="+")
    parser.add_argument("--write", action="store_true", help="change the index")
    options = parser.parse_args(arguments)

    library = Library()
    try:
        for path in options.answers:
            for answer in list_answers(path):
                entry, is_better = library.submit(answer)
                verdict = "better" if is_better else "not better than"
                print(f"{entry.name}: {verdict}: {describe_best(entry)}")
    except VerificationError as error:
        print(error, file=sys.stderr)
        return 5
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.write:
        library.write()
        print(f"{library.folder}: written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
