"""The figures of the pages of docs/: `python docs/figures.py` draws them."""
