"""The files of astra-sim."""
