"""What a call must leave alone."""

import torch

from assignment.calling.probes import InputsBefore, Returned


def test_a_write_to_an_input_is_seen_and_so_is_one_between_its_elements():
    whole = torch.zeros(4, 8)
    x, other = whole[:, :5], torch.ones(3)
    inputs = InputsBefore([other, x])
    assert inputs.written_to() is None
    whole[2, 6] = 1.0
    assert inputs.written_to() == 1
    whole[2, 6] = 0.0
    assert inputs.written_to() is None
    other[0] = float("nan")
    assert inputs.written_to() == 0


def test_nan_in_an_input_is_no_change():
    assert InputsBefore([torch.full((4,), float("nan"))]).written_to() is None


def test_huge_views_are_not_copied():
    huge = torch.empty(1 << 33, dtype=torch.uint8)[:: 1 << 31]
    inputs = InputsBefore([huge])
    assert inputs.written_to() is None
    assert not any(copy.numel() for copy in inputs._before)


def test_a_result_in_an_inputs_memory_is_seen():
    x = torch.zeros(4, 8)
    inputs = InputsBefore([x])
    assert inputs.shares_memory([torch.zeros(1), x[1:2].t()])
    assert not inputs.shares_memory([x.clone(), x[:0]])


def test_memory_that_is_returned_twice_is_seen_as_long_as_it_is_held():
    returned, first = Returned(), torch.zeros(4)
    returned.add([first])
    assert returned.holds([torch.ones(2), first[1:]])
    assert not returned.holds([first.clone(), first[:0]])
    del first
    assert not returned.holds([torch.zeros(4)])
