"""Names the misconception behind a wrong result: what a student computed instead, by models of it.

The models are the operators' (assignment/operators/<operator>/misconceptions.py).

strides.py     tensors read in the wrong places
matching.py    which models agree
search.py      what was found so far
"""

from assignment.diagnosis.matching import calls, causes
from assignment.diagnosis.search import Search

__all__ = ["Search", "calls", "causes"]
