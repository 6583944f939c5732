"""Right weighted sums in other styles than the solution's."""

RESPELLED = {"weighted_sum_row_program"}  # graded with other bytes at the ends of lines, too
