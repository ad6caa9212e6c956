"""The rules of ports and machines that jobs share."""
