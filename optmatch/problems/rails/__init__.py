"""Training jobs on rails: the computations and sends of ranks, and the plans that answer them."""

import lazy_loader

# Jobs by name are reached as `om.rails.presets`, and imported on their first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
