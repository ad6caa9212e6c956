"""The smoke tests against a built wheel: every Python of this machine, newest and lowest versions.

`nox` runs all, `nox -R` does so in the environments that are there, `nox -s lowest` runs one. The
tests are copied into an empty folder, and see nothing of the checkout but the wheel.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
MINORS = range(11, 16)  # of Python 3
OPTIONAL = ("plot", "pandas", "netlist", "parquet", "dask")
WHEELS = ROOT / "build" / "wheels"

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = True


def pythons() -> tuple[dict[str, str], list[str]]:
    """Return the Pythons that really run, by version, and what was found but does not."""
    found, broken = {}, []
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in MINORS:
        name = f"3.{minor}"
        on_path = shutil.which(f"python{name}")
        places = [Path(on_path)] if on_path else []
        places += sorted(kept.glob(f"{name}.*/bin/python"), reverse=True)
        for place in places:
            ask = [str(place), "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
            said = subprocess.run(ask, capture_output=True, text=True, check=False)
            if said.stdout.strip() == name:
                found[name] = str(place)
                break
            reason = (said.stderr.strip().splitlines() or ["it says nothing"])[0]
            broken.append(f"{place}: {reason}")
    return found, broken


PYTHONS, BROKEN = pythons()
for line in BROKEN:
    print(f"skipped: {line}")
print(f"Pythons: {', '.join(PYTHONS) or 'none'}")
print(f"not here: {', '.join(v for n in MINORS if (v := f'3.{n}') not in PYTHONS) or 'none'}")


def lowest() -> list[str]:
    """Return the lowest version of each requirement, of the package and of what is optional."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *(line for name in OPTIONAL for line in extras[name])]
    return [re.sub(r"\s*>=\s*", "==", line) for line in needed]


def install(session: nox.Session, *more: str, extras: bool = True) -> None:
    """Install the wheel, unless the environment is used again."""
    wheel = max(WHEELS.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    wanted = f"[{','.join(OPTIONAL)}]" if extras else ""
    session.install("pytest>=8.3", f"optmatch{wanted} @ {wheel.as_uri()}", *more)
    again = ("pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel))
    session.run("python", "-m", *again)


def smoke(session: nox.Session) -> None:
    """Run the smoke tests in an empty folder, with kernels that are kept for the next run."""
    place = Path(session.create_tmp()) / "smoke"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(ROOT / "tests" / "smoke", place)
    (place / "pytest.ini").write_text("[pytest]\n")  # that of the checkout makes warnings errors
    session.chdir(place)
    kept = {"NUMBA_CACHE_DIR": str(Path(session.virtualenv.location) / "kernels")}
    session.run(
        *("python", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--durations=3", "."),
        *session.posargs,
        env=kept | {"PYTHONPATH": ""},
    )


@nox.session(python=False)
def wheel(session: nox.Session) -> None:
    """Build the wheel that all others install."""
    for old in (WHEELS, ROOT / "build" / "lib"):  # setuptools would pack modules that have moved
        shutil.rmtree(old, ignore_errors=True)
    build = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "-o", str(WHEELS))
    session.run(*build, str(ROOT), external=True, silent=True)
    (built,) = WHEELS.glob("*.whl")
    session.log(f"{built.name}: {built.stat().st_size / 1e6:.2f} MB")


def offer(name: str, python: str, *more: str, extras: bool = True) -> None:
    """Add a session that runs the smoke tests with one Python and one set of versions."""

    def session(session: nox.Session) -> None:
        install(session, *more, extras=extras)
        smoke(session)

    nox.session(python=python, name=name, requires=["wheel"])(session)


# Those that tell most come first, for who has not the time for all: the newest Python, then the
# lowest versions. `make test` runs the newest versions on one Python, so their like comes last.
if PYTHONS:
    newest, *others = reversed(PYTHONS)
    offer(f"newest-{newest}", PYTHONS[newest])
    offer("lowest", next(iter(PYTHONS.values())), *lowest())
    offer("bare", PYTHONS[newest], extras=False)
    for version in others:
        offer(f"newest-{version}", PYTHONS[version])
