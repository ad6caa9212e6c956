"""The efficiency of a job, from one measured step."""

from __future__ import annotations

from dataclasses import replace

from optmatch.model import InputError, number
from optmatch.problems.rails.problem import RailJob

_TOLERANCE = 1e-9
_MOST_GUESSES = 60
_LONGEST_S = 1e6


def calibrate(job: RailJob, step_s: float) -> RailJob:
    """Adjust the speed of computation in a job until a step takes as long as was measured.

    The speed is stated as an efficiency: the part of the peak rate of GPUs that computations
    reach, from 0 to 1. It is the only thing that is adjusted; the times of communication stay as
    the job derives them.

    Parameters
    ----------
    job
        A job with a model.
    step_s
        How long a step takes with all links there, without switching, in seconds.

    Returns
    -------
    RailJob
        The same job with another efficiency; everything else is predicted.

    Raises
    ------
    InputError
        Of a recorded step, or a step that is shorter than the whole peak allows.

    Examples
    --------
    >>> import optmatch as om
    >>> model = om.TransformerModel(layers=8, hidden=1024, heads=8, sequence=128, vocabulary=1000,
    ...                             ffn=4096)
    >>> job = om.RailJob(parallelism=om.Parallelism(dp=2, pp=2),
    ...                  network=om.RailNetwork(gpus_per_server=1),
    ...                  workload=om.Workload(model=model, batch=8))
    >>> round(calibrate(job, 0.01).lower_bound(), 6)
    0.01
    """
    step_s = number("step_s", step_s)
    if step_s > _LONGEST_S:
        text = f"step_s = {step_s:g}: {_LONGEST_S:g} s at most are expected"
        raise InputError(text, where="step_s")
    if job.workload.model is None:
        raise InputError("a recorded step has times of its own", where="workload.recorded")

    # The secant method on the factor by which computations are slower than at the peak. The time
    # of a step is convex and piecewise linear in it, and the factor is never below 1, the peak.
    # ``factor_late_s`` is by how much a step with `factor` is longer than the measured one.
    factor = 1.0
    factor_late_s = _slow_down(job, factor).lower_bound() - step_s
    if factor_late_s > _TOLERANCE * step_s:
        text = f"step_s = {step_s:g}: with all of the peak a step takes {factor_late_s + step_s:g}"
        raise InputError(text, where="step_s")

    # The first guess is the ratio of the times.
    guess = step_s / (factor_late_s + step_s)

    # A straight line through the last two factors and their times gives the next guess. The search
    # ends when the step is exact, or does not depend on the factor any more.
    for _ in range(_MOST_GUESSES):
        guess_late_s = _slow_down(job, guess).lower_bound() - step_s
        if abs(guess_late_s) <= _TOLERANCE * step_s or guess_late_s == factor_late_s:
            break
        change = guess_late_s * (guess - factor) / (guess_late_s - factor_late_s)
        factor = guess
        factor_late_s = guess_late_s
        guess = max(1.0, guess - change)
    return _slow_down(job, guess)


def _slow_down(job: RailJob, factor: float) -> RailJob:
    """Return the job whose computations last `factor` times as long as at the peak."""
    return replace(job, workload=replace(job.workload, efficiency=min(1.0, 1 / factor)))
