# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .optics.deviation import choose_states as choose_states
from .optics.fitting import (
    fit_chip as fit_chip,
    forecast_powers as forecast_powers,
    half_turn_cells as half_turn_cells,
    model_powers as model_powers,
)
from .report import Report as Report, Violation as Violation
from .slices.steering import check_steering as check_steering
