# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .drivers.opening import (
    Conditions as Conditions,
    DrySwitch as DrySwitch,
    open_switch as open_switch,
    read_losses as read_losses,
)
from .drivers.polatis import PolatisSwitch as PolatisSwitch
from .drivers.sonic import SonicSwitch as SonicSwitch
from .player import (
    MeasuredDelays as MeasuredDelays,
    PlayedMoment as PlayedMoment,
    PlayOptions as PlayOptions,
    PlayReport as PlayReport,
    measured_delays as measured_delays,
    play as play,
)
from .protocol import (
    CrossConnect as CrossConnect,
    Difference as Difference,
    PortTable as PortTable,
    Switch as Switch,
    SwitchError as SwitchError,
    SwitchReading as SwitchReading,
    Tuning as Tuning,
    difference_between as difference_between,
    read_port_tables as read_port_tables,
)
from .reroutes.watcher import Watcher as Watcher, WatchEvent as WatchEvent
