"""What all processes of a run share: the forms of messages and of programs, and tensors on the wire."""
