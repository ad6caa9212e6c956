"""Type hints of fields become forms, however a Python or a NumPy spells them."""

import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Literal, Optional, TypeVar, Union

import numpy as np
import pytest
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import InputError, Schedule
from optmatch.model.declarations import (
    Amount,
    Array,
    Axes,
    Choice,
    Count,
    Instance,
    Listed,
    Mapped,
    Plain,
    Positive,
    Range,
    Word,
    form_of,
)

if sys.version_info >= (3, 12):
    from typing import TypeAliasType
else:  # what Python and NumPy make from 3.12 on, as a package for older ones
    from typing_extensions import TypeAliasType

N = TypeVar("N", bound=np.generic)
K = TypeVar("K")
V = TypeVar("V")
make_alias: Any = TypeAliasType
Row: Any = make_alias("Row", np.ndarray[Any, np.dtype[N]], type_params=(N,))  # type: ignore[valid-type]
Rows: Any = make_alias("Rows", Row[np.int32])
Share: Any = make_alias("Share", Annotated[float, Range(0, 1)])
Turned: Any = make_alias("Turned", Mapping[V, K], type_params=(K, V))  # type: ignore[valid-type]


class Colour(Enum):
    """A class that is no number."""

    RED = "red"


FORMS: dict[str, tuple[Any, Any]] = {
    "int": (int, Plain(int)),
    "str": (str, Plain(str)),
    "bool": (bool, Plain(bool)),
    "count": (Count, Plain(int, Range(1))),
    "amount": (Amount, Plain(float, Range(0))),
    "alias": (Share, Plain(float, Range(0, 1))),
    "alias in a union": (Share | None, Choice((Plain(float, Range(0, 1)),), True)),
    "union": (int | str, Choice((Plain(int), Plain(str)), False)),
    "old union": (Union[int, str], Choice((Plain(int), Plain(str)), False)),  # noqa: UP007
    "optional": (Optional[Positive], Choice((Plain(float, Range(0, above=True)),), True)),  # noqa: UP045
    "words": (Literal["a", "b"], Word(("a", "b"))),
    "array": (NDArray[np.float64], Array(np.float64, Axes(1))),
    "array of two axes": (
        Annotated[NDArray[np.int32], Axes(2), Range(0)],
        Array(np.int32, Axes(2), Range(0)),
    ),
    "plain array": (np.ndarray[Any, np.dtype[np.int8]], Array(np.int8, Axes(1))),
    "alias of an array": (Row[np.int64], Array(np.int64, Axes(1))),
    "alias of an alias": (Annotated[Rows, Axes(2)], Array(np.int32, Axes(2))),
    "array or none": (NDArray[np.int8] | None, Choice((Array(np.int8, Axes(1)),), True)),
    "sequence": (Sequence[str], Listed(Plain(str))),
    "tuple": (tuple[int, ...], Listed(Plain(int))),
    "pair": (tuple[int, int], Listed(Plain(int), 2)),
    "mapping": (Mapping[str, Row[np.int8]], Mapped(Array(np.int8, Axes(1)))),
    "alias that turns its parameters": (Turned[int, str], Mapped(Plain(int))),
    "class": (Schedule, Instance(Schedule)),
    "abstract class": (Fabric, Instance(Fabric)),
    "class with parameters": (list[int], Instance(list)),
    "enum": (Colour, Instance(Colour)),
    "anything": (Any, Instance(object)),
}


@pytest.mark.parametrize("hint, form", FORMS.values(), ids=FORMS)
def test_each_hint_has_its_form(hint: Any, form: Any) -> None:
    assert form_of(hint) == form


@pytest.mark.parametrize("name", FORMS)
def test_each_form_checks_what_it_takes(name: str) -> None:
    """A form that is made from a hint answers for any value: it takes it or refuses it by name."""
    form = form_of(FORMS[name][0])
    for value in (1, 2.5, "a", True, None, [1, 2], np.arange(3), {"a": 1}, Colour.RED):
        try:
            form.check("field", value)
        except InputError as refused:
            assert "field" in str(refused)
        else:
            assert form.takes(value)


@pytest.mark.parametrize(
    "hint, value, told",
    [
        (float | Literal["cells"], "Cells", "a number or cells is expected"),
        (int | Sequence[str], 8.0, "a whole number or a list is expected"),
        (int | str | None, [], "a whole number or a text is expected"),
    ],
)
def test_a_refusal_names_every_form_of_a_union(hint: Any, value: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        form_of(hint).check("x", value)


def test_a_hint_without_a_form_is_refused_where_it_is_written() -> None:
    """A word of `typing` that the table lacks would else fail at the first `isinstance`."""
    with pytest.raises(TypeError, match="no form of a field"):
        form_of(TypeVar("Unknown"))
