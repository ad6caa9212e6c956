"""`optmatch generate` of questions of sharing."""

from __future__ import annotations

from optmatch.commands.sharing.tenancy import tenancy

COMMANDS = (tenancy,)
