"""Former names of modules work for one more release, for imports and for pickles."""

import pickle
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import optmatch as om
from optmatch.moved import MOVED

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", MOVED)
def test_a_former_name_is_found(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"is now optmatch.{MOVED[name]}$"):
        old = import_module(f"optmatch.{name}")
    new = import_module(f"optmatch.{MOVED[name]}")
    names = [key for key, value in vars(new).items() if not isinstance(value, ModuleType)]
    names = [key for key in names if not key.startswith("_")]
    assert all(getattr(old, key) is getattr(new, key) for key in names)


def test_no_module_is_hidden() -> None:
    for name in MOVED:
        assert not list((ROOT / "optmatch").glob(f"{name.replace('.', '/')}.py"))
        assert not list((ROOT / "optmatch").glob(f"{name.replace('.', '/')}/__init__.py"))


def test_a_pickle_with_a_former_name_is_read() -> None:
    """Protocol 0 writes names as text, so that a pickle of the last release can be made here."""
    text = pickle.dumps(om.HexMesh(2, 3), protocol=0)
    former = text.replace(b"optmatch.fabrics.meshes.mesh", b"optmatch.fabrics.mesh")
    assert former != text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert pickle.loads(former) == om.HexMesh(2, 3)


def test_other_names_stay_unknown() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("optmatch.fabrics.never")
