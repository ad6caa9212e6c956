"""Recirculating meshes: light may go round, and any perimeter terminal may be a port."""
