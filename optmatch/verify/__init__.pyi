# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .report import Report as Report, Violation as Violation
from .slices.replay import check_steering as check_steering
