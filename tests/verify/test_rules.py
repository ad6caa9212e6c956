"""Every rule of the verifier refuses an answer that no other rule refuses."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import optmatch as om
from optmatch.verify.report import Findings
from tests.helpers.mutants import key_of, list_equivalents, list_mutants
from tests.verify import rules
from tests.verify.rules import UNPROVED, Row

BELOW = "no answer is below what is proved"
HERE = Path(__file__).parent
CHECKED = Path(om.__file__).parent
ROWS = {
    (path.stem, number): row
    for path in sorted((HERE / "rules").glob("[a-z]*.py"))
    for number, row in enumerate(importlib.import_module(f"{rules.__name__}.{path.stem}").ROWS)
}


class Verdict(NamedTuple):
    """What is said of a row, and where in the code that was said."""

    report: om.Report
    places: frozenset[tuple[str, int, str]]
    """File, line and rule of all calls that led to a violation, or to what is unproved."""


def judge(row: Row, without: str | None = None) -> Verdict:
    """Verify an answer; one rule may be taken out."""
    places = set[tuple[str, int, str]]()

    def note(rule: str) -> None:
        frame: Any = sys._getframe(2)
        while frame is not None:
            places.add((frame.f_code.co_filename, frame.f_lineno, rule))
            frame = frame.f_back
        trace = sys.exc_info()[2]
        while trace is not None:
            places.add((trace.tb_frame.f_code.co_filename, trace.tb_lineno, rule))
            trace = trace.tb_next

    def refuse(findings: Findings, rule: str, *told: Any) -> None:
        note(rule)
        if rule != without:
            kept_refuse(findings, rule, *told)

    def doubt(findings: Findings, told: str) -> None:
        note(UNPROVED)
        if without != UNPROVED:
            kept_doubt(findings, told)

    kept_refuse, kept_doubt = Findings.refuse, Findings.doubt
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Findings, "refuse", refuse)
        patch.setattr(Findings, "doubt", doubt)
        if callable(row.problem):
            report = row.problem(row.subject)
        else:
            report = om.verify(row.problem, row.subject)
    return Verdict(report, frozenset(places))


@cache
def verdict_of(place: tuple[str, int]) -> Verdict:
    """Judge a row by all rules."""
    return judge(ROWS[place])


@pytest.mark.parametrize("name", sorted({name for name, _ in ROWS}))
def test_one_rule_refuses_it(name: str) -> None:
    for place in (place for place in ROWS if place[0] == name):
        try:
            check_row(place)
        except AssertionError as error:
            error.add_note(f"row {place[1]}")
            raise


def check_row(place: tuple[str, int]) -> None:
    """One rule refuses the answer of a row, and without that rule none does."""
    row, report = ROWS[place], verdict_of(place).report
    found = {violation.rule for violation in report.violations}
    if report.unproved and not found:
        found = {UNPROVED}
    assert found == ({row.rule} - {None}), str(report)
    assert bool(report.skipped) == row.stops, str(report)
    told = [*map(str, report.violations), *report.unproved, ""]
    assert row.says in told[0]
    assert row.told in (None, len(report.violations)), str(report)
    assert {name: report.figures.get(name) for name in row.figures} == row.figures
    if row.rule is not None:
        rest = judge(row, without=row.rule).report
        ended = {"an answer can be replayed to its end"} if row.stops else set[str]()
        # What cheats may end up below every bound, which a rule for all kinds looks at once more.
        refused_by = {violation.rule for violation in rest.violations}
        assert refused_by <= ended | {BELOW}, str(rest)
        assert rest.valid or row.stops or BELOW in refused_by, str(rest)
        assert not rest.unproved or row.rule != UNPROVED, str(rest)


class Place(NamedTuple):
    """Where the verifier may refuse an answer."""

    path: str
    first: int
    last: int
    rule: str | None
    """With a star for what is filled in; None where it was given by who calls."""

    def is_in(self, found: set[tuple[str, int, str]]) -> bool:
        """Tell whether some answer was refused here."""
        name = ".*".join(map(re.escape, (self.rule or "*").split("*")))
        return any(
            path == self.path and self.first <= line <= self.last and re.fullmatch(name, rule)
            for path, line, rule in found
        )

    @property
    def room(self) -> str:
        """The question, as its folder is called; `claims` where it is about all."""
        folder = Path(self.path).parent
        return "claims" if folder.name in ("verify", CHECKED.name) else folder.name

    def __str__(self) -> str:
        return f"{Path(self.path).relative_to(CHECKED)}:{self.first}: {self.rule or 'any rule'}"


def list_places() -> Iterator[Place]:
    """List all calls to which a rule is given, by its names, and all proofs that are none."""
    files = [*CHECKED.glob("verify/**/*.py"), CHECKED / "entrances.py"]
    trees = {str(file): _with_texts_of_rules(file) for file in sorted(files)}
    taking = {"doubt": -1}
    for tree in trees.values():
        taking |= _takers(tree)
    for path, tree in trees.items():
        known = taking | _takers(tree)  # private ones of a module may be called alike
        for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
            for node in (n for n in ast.walk(function) if isinstance(n, ast.Call | ast.Raise)):
                for rule in _rules(node, function, known):
                    yield Place(path, node.lineno, node.end_lineno or 0, rule)


class _RuleTexts(ast.NodeTransformer):
    """Puts the text of a rule that several places check in the place of its name."""

    def __init__(self, module: Any) -> None:
        self.rules = {n: v for n, v in vars(module).items() if n.isupper() and isinstance(v, str)}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace the name of a rule."""
        if node.id not in self.rules or not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(ast.Constant(self.rules[node.id]), node)


def _with_texts_of_rules(file: Path) -> ast.Module:
    """Parse a file, with the texts of rules instead of their names."""
    name = ".".join(file.relative_to(CHECKED.parent).with_suffix("").parts)
    module = importlib.import_module(name.removesuffix(".__init__"))
    tree = ast.parse(file.read_text("utf-8"))
    transformed: ast.Module = _RuleTexts(module).visit(tree)
    return transformed


def _takers(tree: ast.Module) -> dict[str, int]:
    """Tell which functions take a rule, and as which of their arguments; -1 by its name alone."""
    found = {}
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        names = [a.arg for a in function.args.args if a.arg != "self"]
        if {"rule", "floor"} & {*names, *(a.arg for a in function.args.kwonlyargs)}:
            found[function.name] = names.index("rule") if "rule" in names else -1
    return found


def _rules(node: Any, function: ast.FunctionDef, taking: dict[str, int]) -> list[str | None]:
    """Give the rules by which a statement or a call may refuse."""
    if isinstance(node, ast.Raise) and "ProofError" in ast.unparse(node):
        return ["the certificate is a proof"]
    called = ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
    if called not in taking:
        return []
    given = [k.value for k in node.keywords if k.arg in ("rule", "floor")]
    if not given and taking[called] >= 0:
        given = [node.args[taking[called]]]
    elif not given and called != "doubt":
        return []  # an optional one
    return [rule for value in given for rule in _texts(value, function)] or [None]


def _texts(value: ast.expr, function: ast.FunctionDef) -> list[str]:
    """Give all texts that an expression may be; of a name what it was given last before."""
    if isinstance(value, ast.JoinedStr):
        parts = [p.value if isinstance(p, ast.Constant) else "*" for p in value.values]
        return ["".join(map(str, parts))]
    if isinstance(value, ast.Constant):
        return [value.value] if isinstance(value.value, str) and value.value else []
    inside: list[ast.expr] = [n for n in ast.iter_child_nodes(value) if isinstance(n, ast.expr)]
    if isinstance(value, ast.IfExp):
        inside = [value.body, value.orelse]
    elif isinstance(value, ast.Tuple) and isinstance(value.elts[0], ast.Constant | ast.JoinedStr):
        inside = value.elts[:1]
    elif isinstance(value, ast.Name):
        given: list[tuple[int, ast.expr]] = []
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.For) and node.lineno < value.lineno:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if value.id in {getattr(n, "id", "") for t in targets for n in ast.walk(t)}:
                    given.append(
                        (node.lineno, node.value if isinstance(node, ast.Assign) else node.iter)
                    )
        inside = [max(given, key=lambda each: each[0])[1]] if given else []
    elif isinstance(value, ast.Call | ast.Compare | ast.Subscript):
        return []
    return [text for part in inside for text in _texts(part, function)]


def test_every_rule_has_a_row() -> None:
    """Places are listed here and not on import: that takes longer than the test itself."""
    places = list(list_places())
    assert {place.room for place in places} >= {"claims", "collectives", "rails", "routing"}
    found = {place for key in ROWS for place in verdict_of(key).places}
    missing = {str(place) for place in places if not place.is_in(found)}
    assert not missing, "\n".join(["no row for", *sorted(missing)])


def test_equivalent_changes_are_still_there() -> None:
    """What `make mutate` passes over is a change of today's code, has a reason, and is rare."""
    listed = list_equivalents()
    changes = list_mutants("optmatch/verify") + list_mutants("optmatch/optics")
    paths = {path for path, _, _ in listed}
    found = {key_of(change) for change in changes if change.path in paths}
    assert set(listed) <= found, sorted(set(listed) - found)
    assert all(listed.values())
    assert len(listed) <= len(changes) / 10
