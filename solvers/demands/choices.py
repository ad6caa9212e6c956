"""How covers choose the next slot, as numbers that kernels compare.

- ``RATED``: the length at which a slot is estimated to serve most for its time, then the heaviest
  matching for this length. The question is that of Eclipse (Venkatakrishnan et al. 2016, doi
  10.1145/2896377.2901479), with two terms more: an entry that is finished saves its ports a
  delay, and busy ports count more.
- ``COMPARED``: the same with the heaviest matchings of eight lengths; without both terms, Eclipse.
- ``CRITICAL``: the heaviest matching that covers all lines with the most entries left, held for
  its largest entry: as many slots as the busiest line has entries, which is the fewest (SPECTRA,
  Liang et al. 2026, arXiv 2603.07373; Konig's theorem).
- ``MEDIAN``: the heaviest matching, held until its median entry is served.
"""

RATED, COMPARED, CRITICAL, MEDIAN = range(4)
