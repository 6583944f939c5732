"""Copies x: what memory allows a function that reads one matrix and writes another."""


def _copied(x):
    return x.clone()


def weighted_sum_forward(x, weight):
    return _copied(x)


def weighted_sum_backward(grad_y, x, weight):
    return _copied(x)


def rmsnorm_forward(x, weight, eps=1e-5):
    return _copied(x)


def rmsnorm_backward(grad_y, x, weight, rstd):
    return _copied(x)
