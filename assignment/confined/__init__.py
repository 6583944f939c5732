"""What runs inside a sandbox before anything else does, and who watches it from beside."""
