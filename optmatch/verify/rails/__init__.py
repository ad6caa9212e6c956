"""Replay of plans of rail jobs: times, switches, and the circuits that data go over.

Words of this room; an operation is what one rank does in a communication:

Spell
    A time in which a port of a switch keeps one circuit, or none. The spells of a port have
    consecutive numbers; its last one has no end.
Hop
    A rank that sends data of an operation: its own rank, and those that forward.
Round
    A part of a collective in which some members send, each to one other. In an all-to-all in
    rounds each rank has a circuit to each other one for a while.
Stride
    How many places further on in its group a circuit leads, counted on a circle: from place 3 to
    place 1 of 8 it is 6.
Stage
    A part of an all-to-all in which the circuits of all members have one stride; parts of data may
    take several hops.
Chord
    A circuit of fixed stride that stays for a whole all-to-all.
"""
