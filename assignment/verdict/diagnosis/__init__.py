"""Names the misconception behind a wrong result: what a student computed instead, by models of it.

The models are the operators' (assignment/operators/<operator>/misconceptions.py).

strides.py     tensors read in the wrong places
candidates.py  what may have been computed instead
closeness.py   how close a model comes to the result
matching.py    which models agree
"""
