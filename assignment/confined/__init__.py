"""What runs inside a sandbox before anything else, and the supervisor beside it."""
