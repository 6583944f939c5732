"""What all processes of a run share: tensors and programs on the wire, and what is done with a request."""
