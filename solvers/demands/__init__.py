"""From a demand to matchings and durations: decompositions, covers, exact models, bounds."""
