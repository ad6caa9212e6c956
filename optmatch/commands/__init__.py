"""The commands of the command line, one module each; heavy imports wait inside them."""
