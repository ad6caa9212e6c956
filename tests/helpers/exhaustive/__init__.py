"""The best answers to tiny problems by trying everything: slow, and too simple to be wrong."""
