"""What all processes of a run share: tensors and programs on the wire, and handlers of requests."""
