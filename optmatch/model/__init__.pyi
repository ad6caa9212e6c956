# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .declarations import (
    LONGEST_S as LONGEST_S,
    Amount as Amount,
    Axes as Axes,
    Count as Count,
    FrozenMap as FrozenMap,
    Given as Given,
    GivenOrNone as GivenOrNone,
    GivenOrText as GivenOrText,
    Index as Index,
    Positive as Positive,
    Range as Range,
    Rate as Rate,
    Value as Value,
    check_fields as check_fields,
    given as given,
)
from .device import (
    CELL_FIELDS as CELL_FIELDS,
    DEVICES as DEVICES,
    ON_CHIP as ON_CHIP,
    CellDevice as CellDevice,
    Device as Device,
    cells_of as cells_of,
    find_device as find_device,
)
from .display import (
    Displayed as Displayed,
    figures_of as figures_of,
    view_of as view_of,
    view_of_solution as view_of_solution,
)
from .errors import (
    FormatError as FormatError,
    InfeasibleError as InfeasibleError,
    InputError as InputError,
    LimitReached as LimitReached,
    OptMatchError as OptMatchError,
    SolverError as SolverError,
    SolverUnavailable as SolverUnavailable,
    TimeUp as TimeUp,
    VerificationError as VerificationError,
    naming as naming,
)
from .limits import (
    Bound as Bound,
    Clock as Clock,
    Event as Event,
    Limits as Limits,
    NewBest as NewBest,
    OnEvent as OnEvent,
    Tick as Tick,
    check_time as check_time,
    counted_time as counted_time,
    ignore as ignore,
    running_clock as running_clock,
    uncounted as uncounted,
    uncounted_s as uncounted_s,
    unlimited as unlimited,
)
from .numbers import (
    SIZES as SIZES,
    check_size as check_size,
    frozen as frozen,
    integer as integer,
    largest as largest,
    number as number,
)
from .problem import (
    Problem as Problem,
    Score as Score,
    gap_between as gap_between,
    is_known as is_known,
    is_levels as is_levels,
    scale_of as scale_of,
    unit_of as unit_of,
    write_amount as write_amount,
    write_score as write_score,
)
from .schedule import (
    BAR as BAR,
    CROSS as CROSS,
    FREE as FREE,
    IDLE as IDLE,
    PlannedSlot as PlannedSlot,
    Schedule as Schedule,
)
from .solution import (
    PROOFS as PROOFS,
    RTOL as RTOL,
    Limit as Limit,
    Proof as Proof,
    Solution as Solution,
    Stats as Stats,
    Status as Status,
    describe_claims as describe_claims,
    schedule_of as schedule_of,
)
