"""Code that several commands use: options, messages, exit codes, Ctrl-C."""
