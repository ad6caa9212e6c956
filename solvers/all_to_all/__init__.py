"""In which matchings all pairs of ports meet: 1-factorisations, joint bounds, repair."""
