"""Studies: many problems of one question, and statistics of their answers.

The modules load what they need, so import from them: `comparisons` of fabrics and methods,
`all_to_all.yields` of faulty chips, `slices.tables` of rules of placement, `reroutes.tables` of
spares and failed chips.
"""
