"""Pictures: data first (`*_data`), then matplotlib (`plot_*`), the HTML viewer, and files."""

from optmatch.plotting.comparison import FabricsData, fabrics_data, plot_fabrics
from optmatch.plotting.demands.gantt import GanttData, gantt_data, plot_gantt
from optmatch.plotting.figures import plot_contact_sheet, plot_matchings, plot_slot
from optmatch.plotting.files import SUFFIXES, fabric_svg, save_figure, save_picture
from optmatch.plotting.geometry import MeshData, PortMark, mesh_data
from optmatch.plotting.heat import HeatData, heat_data, plot_heat
from optmatch.plotting.rails.costs import CostsData, costs_data, plot_costs
from optmatch.plotting.rails.gantt import RailGanttData, plot_rails, rail_gantt_data
from optmatch.plotting.reroutes.transitions import plot_transition, transition_data
from optmatch.plotting.slices.racks import SliceData, plot_slice, slice_data
from optmatch.plotting.slots import (
    CircuitData,
    Drawable,
    ScheduleData,
    SlotData,
    TogglesData,
    all_slots_data,
    schedule_data,
    slot_data,
    toggles_data,
)
from optmatch.plotting.studies import plot_study, study_data
from optmatch.plotting.viewer import CELL_LOSS_DB, solution_html, viewer_page

__all__ = [
    "CELL_LOSS_DB",
    "SUFFIXES",
    "CircuitData",
    "CostsData",
    "Drawable",
    "FabricsData",
    "GanttData",
    "HeatData",
    "MeshData",
    "PortMark",
    "RailGanttData",
    "ScheduleData",
    "SliceData",
    "SlotData",
    "TogglesData",
    "all_slots_data",
    "costs_data",
    "fabric_svg",
    "fabrics_data",
    "gantt_data",
    "heat_data",
    "mesh_data",
    "plot_contact_sheet",
    "plot_costs",
    "plot_fabrics",
    "plot_gantt",
    "plot_heat",
    "plot_matchings",
    "plot_slice",
    "plot_slot",
    "plot_study",
    "plot_transition",
    "plot_rails",
    "rail_gantt_data",
    "save_figure",
    "save_picture",
    "schedule_data",
    "slice_data",
    "slot_data",
    "solution_html",
    "study_data",
    "toggles_data",
    "transition_data",
    "viewer_page",
]
