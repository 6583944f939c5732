"""What Gradescope's container holds beside the grader; python -m assignment.classroom gradescope packs it."""
