"""Racks of servers, joined by fibres and by the switches in front of them."""
