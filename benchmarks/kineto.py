"""Times of traces of PyTorch beside those of Holistic Trace Analysis: ``kineto.py FILE...``.

That package is the extra ``traces``. Two things that it does by default are switched off, so that
both measure the same: it leaves out kernels of the first and last step of the profiler, and cuts
times to whole microseconds. Traces without kernels of NCCL are named only. It ends with 1 if any
time differs by more than 1 %.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from optmatch.io.rails.kineto import Times, measure, read_recording
from optmatch.model import FormatError


def judge(path: str) -> Times:
    """Return what Holistic Trace Analysis measures, of all steps of a trace."""
    from hta.common.trace import Trace
    from hta.trace_analysis import TraceAnalysis

    Trace._filter_irrelevant_gpu_kernels = lambda *_: None
    analysis = TraceAnalysis(trace_files={0: path}, trace_dir="")
    kinds, _ = analysis.get_gpu_kernel_breakdown(visualize=False)
    sums = {row["kernel_type"]: row["sum"] * 1e-6 for _, row in kinds.iterrows()}
    talks = sum(s for name, s in sums.items() if "COMMUNICATION" in name.split(" overlapping "))
    part = analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"][0]
    whole = analysis.get_temporal_breakdown(visualize=False)
    computes, span = (whole[f"{one}_time(us)"][0] * 1e-6 for one in ("compute", "kernel"))
    return Times(talks, computes, part / 100 * talks, span)


def compare(paths: list[str]) -> Iterator[bool]:
    """Print a row for each trace and time; tell whether they agree."""
    print(f"{'trace':44}{'time':18}{'optmatch, ms':>14}{'HTA, ms':>12}{'error, %':>10}")
    for path in paths:
        name = Path(path).name[:42]
        try:
            recording = read_recording(path, skipped=[])
        except FormatError as exc:
            print(f"{name:44}{exc.where}: {exc.message[:60]}")
            continue
        if not recording.talking:
            print(f"{name:44}no kernels of NCCL")
            continue
        ours, theirs = measure(recording), judge(path)
        for what, one, other in zip(Times._fields, ours, theirs, strict=True):
            error = 100 * (one / other - 1) if other else 0.0
            print(f"{name:44}{what:18}{one * 1e3:14.3f}{other * 1e3:12.3f}{error:10.2f}")
            yield abs(error) <= 1


if __name__ == "__main__":
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.exit(0 if all(list(compare(sys.argv[1:]))) else 1)
