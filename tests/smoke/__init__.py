"""What an installed package must do, whatever it was installed from."""
