"""Who else computes it: a module for each, with functions of the names that students write."""
