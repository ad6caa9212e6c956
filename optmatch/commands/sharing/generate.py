"""`optmatch generate` of questions of sharing."""

from __future__ import annotations

from optmatch.commands.sharing.shares import port_sharing
from optmatch.commands.sharing.tenancy import tenancy

COMMANDS = (port_sharing, tenancy)
