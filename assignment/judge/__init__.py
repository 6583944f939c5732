"""The judge: has calls recorded and played, checks what comes back, and scores it."""
