# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .collectives import (
    RoundsData as RoundsData,
    plot_rounds as plot_rounds,
    rounds_data as rounds_data,
)
from .comparison import (
    CostsData as CostsData,
    FabricsData as FabricsData,
    ProfileData as ProfileData,
    costs_data as costs_data,
    fabrics_data as fabrics_data,
    jitter_data as jitter_data,
    methods_data as methods_data,
    plot_costs as plot_costs,
    plot_fabrics as plot_fabrics,
    plot_jitter as plot_jitter,
    plot_methods as plot_methods,
    plot_optics as plot_optics,
    plot_profiles as plot_profiles,
    plot_variation as plot_variation,
    profile_data as profile_data,
)
from .demands import (
    GanttData as GanttData,
    gantt_data as gantt_data,
    left_bytes as left_bytes,
    plot_gantt as plot_gantt,
    plot_left as plot_left,
)
from .figures import (
    HeatData as HeatData,
    heat_data as heat_data,
    plot_contact_sheet as plot_contact_sheet,
    plot_fabric as plot_fabric,
    plot_heat as plot_heat,
    plot_matchings as plot_matchings,
    plot_slot as plot_slot,
)
from .rails import (
    RailGanttData as RailGanttData,
    plot_rails as plot_rails,
    rail_gantt_data as rail_gantt_data,
)
from .reroutes import (
    plot_transition as plot_transition,
    transition_data as transition_data,
)
from .sharing import (
    SharesData as SharesData,
    plot_shares as plot_shares,
    shares_data as shares_data,
)
from .slices import (
    SliceData as SliceData,
    plot_slice as plot_slice,
    slice_data as slice_data,
)
from .slots import (
    CircuitData as CircuitData,
    Drawable as Drawable,
    MeshData as MeshData,
    PortMark as PortMark,
    ScheduleData as ScheduleData,
    SlotData as SlotData,
    TogglesData as TogglesData,
    all_slots_data as all_slots_data,
    mesh_data as mesh_data,
    schedule_data as schedule_data,
    slot_data as slot_data,
    toggles_data as toggles_data,
)
from .viewer import (
    CELL_LOSS_DB as CELL_LOSS_DB,
    SUFFIXES as SUFFIXES,
    explore as explore,
    fabric_svg as fabric_svg,
    figure_svg as figure_svg,
    problem_html as problem_html,
    save_figure as save_figure,
    save_picture as save_picture,
    solution_figure as solution_figure,
    solution_html as solution_html,
    viewer_page as viewer_page,
)
