"""An example for the end of each command's help; a test runs them all, in this order."""

from __future__ import annotations

EXAMPLES = {
    "generate all-to-all": "--rows 4 --cols 4 --ports 8 -o mesh.json",
    "generate routing": "--rows 4 --cols 4 --ports 8 --random-matching --seed 3 -o one.json",
    "generate demand": "--fabric ideal-switch --size 8 --model solstice --delay 2e-5"
    " -o racks.json",
    "generate rail-job": "--gpus 16 --gpus-per-server 4 --dp 2 --tp 4 --pp 2 --layers 8"
    " --hidden 1024 --heads 8 --sequence 512 --vocabulary 32000 --ffn 4096 --batch 8 -o job.json",
    "generate rail-trace": "--phases phases.csv --groups groups.json -o trace.json",
    "generate collective": "all-gather --ranks 6 --bytes 6e5 --alpha 1e-6 --delay 5e-6"
    " -o gather.json",
    "generate port-sharing": "--resources 60 --jobs 6 --load 1.2 --seed 3 -o pool.json",
    "generate reroute": "--rows 5 --cols 5 --ports 12 --stuck-bar 20 -o broken.json",
    "generate slice-allocation": "--shape 2x2x4 -o slice.json",
    "generate device": "--rows 4 --cols 4 --sigma bar_loss_db=0.1,cross_loss_db=0.1 --seed 1"
    " -o chip.csv",
    "solve": "mesh.json --seed 0 -o mesh.schedule.json",
    "verify": "mesh.schedule.json",
    "simulate": "job.json --policy provisioned --delay 0.1",
    "compare": "racks.json --methods solstice,eclipse --time-limit 1",
    "vary": "gather.json --field delay_s --values 1us,10us,...,1ms --method ring,bruck",
    "faults": "mesh.schedule.json --faults 1 --samples 20 --seed 0",
    "sweep": "spec.toml",
    "report": "spec.sqlite",
    "instances list": "--kind slice-allocation",
    "instances path": "all-to-all/hex-4x4-8",
    "instances show": "slices/rack-hard",
    "plot": "mesh.schedule.json -o mesh.html",
    "export": "mesh.schedule.json --to perfetto -o mesh.trace.json",
    "watch": "pool --begin running.json --switch dry: --for 100ms",
    "play": "mesh.schedule.json --switch dry: --rounds 1",
    "cost": "--gpus 1024,2048",
    "methods": "--json",
    "info": "mesh.json",
    "warm-up": "--quiet",
}  # fmt: skip
"""By the words of a command: what may follow them."""
