"""Real optical circuit switches: read them, change their circuits, play plans on them.

A switch is whatever has the methods of `Switch`: SONiC's through their database, Polatis' by SCPI,
others by the entry-point group ``optmatch.switches``. Nothing is sent that `optmatch.verify`
refuses, and ports that are not the plan's are never touched.
"""

import lazy_loader

# The names stand in `__init__.pyi`, where editors and type checkers read them too.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
