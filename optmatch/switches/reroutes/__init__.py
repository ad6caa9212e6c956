"""Running states on real switches: failures are seen, answered and repaired."""
