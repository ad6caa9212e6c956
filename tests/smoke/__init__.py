"""Requirements on an installed package, wherever it was installed from."""
