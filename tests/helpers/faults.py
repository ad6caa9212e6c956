"""Faults of cells, drawn."""

from hypothesis import strategies as st

from optmatch.fabrics import Fabric, Fault, FaultKind, Faulty


@st.composite
def broken(draw: st.DrawFn, fabric: Fabric, most: int = 3) -> Faulty:
    """Draw some faults of cells."""
    kinds: st.SearchStrategy[FaultKind]
    kinds = st.sampled_from(["stuck-bar", "stuck-cross", "dead-cell"])
    cells = draw(
        st.lists(st.integers(0, fabric.n_cells - 1), min_size=1, max_size=most, unique=True)
    )
    return Faulty.of(fabric, [Fault(draw(kinds), cell) for cell in cells])
