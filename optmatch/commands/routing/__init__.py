"""Commands of matchings."""
