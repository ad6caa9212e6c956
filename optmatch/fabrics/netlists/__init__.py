"""Fabrics that are read from netlists of optical parts.

An *instance* is a named part of some *component*, such as ``mmi2x2``. A *pin* is written
``"instance,pin"``; pins are *joined* in pairs, and a *port* is a pin that leads out of the chip.
Whatever its pins are called, a part has the terminals a1 and a2 on its left side and b1 and b2 on
its right, numbered 0 to 3; a *narrow* part has no a2. A *convention* is how one tool calls these
four pins. A *flaw* is a sentence about what is wrong with a netlist; all are told at once.
"""
