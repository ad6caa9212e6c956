# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .all_to_all import YieldStudy as YieldStudy, study_yield as study_yield
from .comparisons import (
    Crossing as Crossing,
    FabricComparison as FabricComparison,
    MethodComparison as MethodComparison,
    compare_fabrics as compare_fabrics,
    compare_methods as compare_methods,
    vary as vary,
)
from .outcome import Study as Study
