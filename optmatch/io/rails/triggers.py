"""Trigger files: what the controllers of rails wait for, and which state they set then."""

from __future__ import annotations

import os
from typing import Any

from optmatch.io.fields import check_format, from_object, shorten, to_object
from optmatch.io.files import attach, problem_digest
from optmatch.io.text import parse_json, read_bytes
from optmatch.model import FormatError, InputError, Solution, naming
from optmatch.model.files import file_path, path_name
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.derivation import derive_triggers
from optmatch.problems.rails.execution.orders import check_triggers
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.execution.triggers import TriggerPlan

TRIGGER_FORMAT = "optmatch/triggers/1"


def trigger_tree(solution: Solution) -> dict[str, Any]:
    """Return the tree of the trigger file of a rail plan: what controllers and ranks need.

    It has the format, the digest of the job, and the fields of a `TriggerPlan`.
    """
    job = solution.problem
    plan = solution.answer
    if not isinstance(job, RailJob) or not isinstance(plan, RailPlan):
        raise InputError("no plan of rails to derive triggers from")
    tags = {"format": TRIGGER_FORMAT, "problem_sha256": problem_digest(job)}
    return {**tags, **to_object(derive_triggers(job, plan), keep_ndim=1)}


def read_triggers(path: str | os.PathLike[str], job: RailJob) -> TriggerPlan:
    """Read a trigger file for a job, and check that its rows follow from its order.

    The file is JSON with ``"format": "optmatch/triggers/1"`` and the fields of `TriggerPlan`;
    large arrays are in an ``.npz`` beside it. A file for another job is refused.
    """
    name = path_name(path)
    tree: Any = parse_json(read_bytes(path), name)
    with naming(name):
        check_format(tree, "", TRIGGER_FORMAT)
        stated_digest = tree.get("problem_sha256")
        digest = problem_digest(job)
        if stated_digest != digest:
            raise FormatError(
                f"problem_sha256 = {shorten(stated_digest, 66)}, but the job has {digest}",
                where="/problem_sha256",
            )

        # Large arrays lie in a file beside this one.
        whole_tree = attach(tree, file_path(path).parent)
        plan = from_object(TriggerPlan, whole_tree, "", tags=("format", "problem_sha256"))
        check_triggers(job, plan)
    return plan
